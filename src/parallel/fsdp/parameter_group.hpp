#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"
#include "parallel/fsdp/buffer_pool.hpp"
#include "parallel/fsdp/shard_layout.hpp"

namespace lockstep::parallel {

/// The parameters of one unit that have the same dtype and were all trained or all frozen when it was
/// sharded: one flat buffer, of which each rank keeps its part.
///
/// A parameter keeps its tensor (modules, optimizers and graphs hold handles to it), but its data change.
/// While it is sharded they are this rank's part; unsharded, in a forward and its backward, they are a view
/// of the flat tensor, whose memory is allocated and freed. Views that autograd saved use the memory that the
/// flat tensor has at the time. All methods are *Local* unless noted.
class ParameterGroup {
 public:
  /// Keeps this rank's part of the parameters' values; the parameters are then sharded.
  ParameterGroup(std::vector<NamedTensor> parameters, const ShardGroups& groups,
                 const MixedPrecisionPolicy& policy, BufferPool& pool);

  /// Whether any parameter is trained now.
  bool is_trained() const {
    return std::any_of(parameters_.begin(), parameters_.end(),
                       [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
  }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// Throws UsageError if a parameter is no longer this rank's part because it was moved or converted. While
  /// sharded.
  void check_sharded_storage() const;
  /// Starts to gather the unsharded values, unless they are present. *Collective*.
  void start_unshard();
  /// Whether the values of all ranks are there, or on their way.
  bool is_gathered() const { return buffer_.defined(); }
  /// Unshards the parameters, in the dtype of computation, with the gradients that they had when they were
  /// last unsharded. *Collective*.
  void unshard();
  /// Unshards the parameters in their own dtype, until reshard(). While sharded. *Collective*.
  void unshard_in_original_dtype();
  /// Shards the parameters again, with the gradients of this rank's part. `keep`: keep the unsharded values
  /// in memory.
  void reshard(bool keep);
  /// Frees the unsharded values, if they were kept. While sharded.
  void free_unsharded();
  /// Sets this rank's part to the parameters' present values, also of one that was given other data. Returns
  /// why a parameter keeps the values that it had, or "".
  std::string write_back_originals();

  /// The unsharded shape of parameter `number`.
  at::IntArrayRef full_sizes(std::size_t number) const { return unsharded_parameters_[number].sizes(); }
  /// Gathers a tensor with one value per element of parameter `number` from the ranks' parts, in the
  /// parameter's unsharded shape. *Collective*.
  at::Tensor gather(std::size_t number, const at::Tensor& part_of_rank) const;
  /// Where this rank's part of parameter `number` begins, in elements.
  std::int64_t part_begin(std::size_t number) const { return layout_.in_tensor(number, group_.rank()).begin; }
  /// This rank's part of such a tensor.
  at::Tensor take_part(std::size_t number, const at::Tensor& whole) const;

  /// Converts accumulated gradients of unsharded parameters to the dtype of reductions, after a backward
  /// without communication. While sharded.
  void keep_unsharded_gradients();
  /// Drops the gradients of unsharded parameters.
  void drop_unsharded_gradients();
  bool has_gradients() const;
  /// Starts to add the gradients of the unsharded parameters, divided by the number of all ranks, to the sums
  /// of their owners. While sharded. *Collective*.
  void start_reduce_scatter();
  /// Waits for that, and sums over the owners of the same part.
  void wait_for_reduce_scatter();
  /// Whether start_reduce_scatter() was called since accumulate_sharded_gradients(), and whether each
  /// parameter had a gradient.
  bool was_reduce_scattered() const { return !had_gradient_.empty(); }
  const std::vector<std::uint8_t>& had_gradient() const { return had_gradient_; }
  /// Adds this rank's part of the sums to the gradients of the parameters whose `use` is not 0. While
  /// sharded.
  void accumulate_sharded_gradients(std::span<const std::uint8_t> use);

 private:
  void wait_for_all_gather();

  std::vector<NamedTensor> parameters_;
  ProcessGroup group_;
  std::optional<ProcessGroup> replicas_;
  int all_ranks_;
  at::ScalarType compute_dtype_, reduce_dtype_;
  BufferPool& pool_;
  ShardLayout layout_;
  at::Tensor shard_;
  std::vector<at::Tensor> sharded_parameters_;
  /// Its memory is that of buffer_, or none.
  at::Tensor flat_;
  std::vector<at::Tensor> unsharded_parameters_;
  at::Tensor buffer_;
  /// This rank's part in the dtype of computation, while it is sent.
  at::Tensor cast_shard_;
  std::optional<Work> all_gather_work_;
  bool is_unsharded_ = false;
  /// Unsharded values in the parameters' own dtype, while they are shown.
  at::Tensor originals_;

  /// Per parameter: `.grad` of the state (sharded or unsharded) in which it currently is not.
  std::vector<at::Tensor> hidden_gradients_;
  at::Tensor gradient_buffer_, reduced_, sum_;
  std::optional<Work> reduce_scatter_work_;
  std::vector<std::uint8_t> had_gradient_;
};

/// Swaps the parameter's .grad with the stored one.
inline void exchange_gradient(const at::Tensor& parameter, at::Tensor& kept) {
  at::Tensor& gradient = parameter.mutable_grad();
  std::swap(gradient, kept);
}

}  // namespace lockstep::parallel
