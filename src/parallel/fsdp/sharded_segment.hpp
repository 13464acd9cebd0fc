#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "buffer_pool.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "shard_layout.hpp"

namespace lockstep::parallel {

/// The parameters of one unit that have the same dtype and were all trained or all frozen when it was
/// sharded: one flat buffer, of which each rank keeps its part.
///
/// A parameter keeps its tensor (modules, optimizers and graphs hold handles to it), but its data change. At
/// rest they are this rank's part; in a forward and its backward they are a view of the flat tensor, whose
/// memory is allocated and freed. Views that autograd saved use the memory that the flat tensor has at the
/// time. All methods are *Local* unless noted.
class ShardedSegment {
 public:
  /// Keeps this rank's part of the parameters' values; the parameters are then at rest.
  ShardedSegment(std::vector<NamedTensor> parameters, const ShardGroups& groups,
                 const MixedPrecisionPolicy& policy, BufferPool& pool);

  /// Whether any parameter is trained now.
  bool is_trained() const {
    return std::any_of(parameters_.begin(), parameters_.end(),
                       [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
  }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// Throws UsageError if a parameter is no longer this rank's part because it was moved or converted. At
  /// rest.
  void check_parts() const;
  /// Starts to gather the unsharded values, unless they are present. *Collective*.
  void start_gathering();
  /// Unshards the parameters, in the dtype of computation, with the gradients that they had when they were
  /// last unsharded. *Collective*.
  void show_whole();
  /// Unshards the parameters in their own dtype, until show_shards(). At rest. *Collective*.
  void show_originals();
  /// Brings the parameters to rest, with the gradients of this rank's part. `keep`: keep the unsharded values
  /// in memory.
  void show_shards(bool keep);
  /// Frees the unsharded values, if they were kept. At rest.
  void free_whole();
  /// Sets this rank's part to the parameters' present values, also of one that was given other data. Returns
  /// why a parameter keeps the values that it had, or "".
  std::string take_over_originals();

  /// The unsharded shape of parameter `number`.
  at::IntArrayRef full_sizes(std::size_t number) const { return wholes_[number].sizes(); }
  /// Gathers a tensor with one value per element of parameter `number` from the ranks' parts, in the
  /// parameter's unsharded shape. *Collective*.
  at::Tensor gather(std::size_t number, const at::Tensor& part_of_rank) const;
  /// This rank's part of such a tensor.
  at::Tensor take_part(std::size_t number, const at::Tensor& whole) const;

  /// Converts accumulated gradients of unsharded parameters to the dtype of reductions, after a backward
  /// without communication. At rest.
  void keep_gradients();
  /// Drops the gradients of unsharded parameters.
  void drop_gradients();
  bool has_gradients() const;
  /// Starts to add the gradients of the unsharded parameters, divided by the number of all ranks, to the sums
  /// of their owners. At rest. *Collective*.
  void start_reducing();
  /// Waits for that, and sums over the owners of the same part.
  void finish_reducing();
  /// Whether start_reducing() was called since take_sums(), and whether each parameter had a gradient.
  bool was_reduced() const { return !had_gradient_.empty(); }
  const std::vector<std::uint8_t>& had_gradient() const { return had_gradient_; }
  /// Adds this rank's part of the sums to the gradients of the parameters whose `use` is not 0. At rest.
  void take_sums(std::span<const std::uint8_t> use);

 private:
  void finish_gathering();

  std::vector<NamedTensor> parameters_;
  ProcessGroup group_;
  std::optional<ProcessGroup> replicas_;
  int all_ranks_;
  at::ScalarType compute_dtype_, reduce_dtype_;
  BufferPool& pool_;
  ShardLayout layout_;
  at::Tensor shard_;
  std::vector<at::Tensor> shards_;
  /// Its memory is that of buffer_, or none.
  at::Tensor flat_;
  std::vector<at::Tensor> wholes_;
  at::Tensor buffer_;
  /// This rank's part in the dtype of computation, while it is sent.
  at::Tensor cast_shard_;
  std::optional<Work> gathering_;
  bool is_whole_ = false;
  /// Unsharded values in the parameters' own dtype, while they are shown.
  at::Tensor originals_;

  /// Per parameter: `.grad` of the state (sharded or unsharded) in which it currently is not.
  std::vector<at::Tensor> hidden_gradients_;
  at::Tensor gradient_buffer_, reduced_, sum_;
  std::optional<Work> reducing_;
  std::vector<std::uint8_t> had_gradient_;
};

/// Swaps the parameter's .grad with the stored one.
inline void exchange_gradient(const at::Tensor& parameter, at::Tensor& kept) {
  at::Tensor& gradient = parameter.mutable_grad();
  std::swap(gradient, kept);
}

}  // namespace lockstep::parallel
