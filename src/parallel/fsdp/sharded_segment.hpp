#pragma once

#include <ATen/core/Tensor.h>

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

/// Parameters of one unit that have a dtype in common, and are all trained or all frozen: one flat buffer, of
/// which each rank keeps its part.
///
/// A parameter keeps its tensor (modules, optimizers and graphs hold handles on it) and changes its data: at
/// rest they are this rank's part, in a forward and its backward a view of the flat tensor, whose memory
/// comes and goes. Views that autograd saved see the memory of that moment. All methods are *Local* but those
/// marked otherwise.
class ShardedSegment {
 public:
  /// Takes the parameters' values as they are; they are at rest then.
  ShardedSegment(std::vector<NamedTensor> parameters, const ShardGroups& groups,
                 const MixedPrecisionPolicy& policy, BufferPool& pool);

  bool is_trained() const { return parameters_.front().tensor.requires_grad(); }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// Throws UsageError where a parameter is no longer this rank's part that it was made, but has been moved
  /// or converted. At rest.
  void check_parts() const;
  /// Begins to gather the whole values, unless they are there. *Collective*.
  void start_gathering();
  /// The parameters are whole, in the dtype of computations, with the gradients that they had when they were
  /// whole last. *Collective*.
  void show_whole();
  /// The parameters are whole in their own dtype, until show_shards(). At rest. *Collective*.
  void show_originals();
  /// The parameters are at rest, with the gradients of this rank's part. `keep`: the whole values stay in
  /// memory.
  void show_shards(bool keep);
  /// Frees the whole values, if they were kept. At rest.
  void free_whole();
  /// This rank's part becomes what the originals are now.
  void take_over_originals();

  /// The shape of parameter `number` when it is whole.
  at::IntArrayRef full_sizes(std::size_t number) const { return wholes_[number].sizes(); }
  /// What belongs to parameter `number` element by element: of this rank's part, from all ranks' parts the
  /// whole, in the parameter's shape. *Collective*.
  at::Tensor gather(std::size_t number, const at::Tensor& part_of_rank) const;
  /// And of the whole, this rank's part.
  at::Tensor take_part(std::size_t number, const at::Tensor& whole) const;

  /// Between a backward that sends nothing and the next, the gradients of whole parameters have the dtype of
  /// reductions. At rest.
  void keep_gradients();
  /// Forgets gradients of whole parameters.
  void drop_gradients();
  bool has_gradients() const;
  /// Begins to add the gradients of the whole parameters, divided by the number of all ranks, to the sums of
  /// their owners. At rest. *Collective*.
  void start_reducing();
  /// Waits for that, and adds up what owners of the same part have.
  void finish_reducing();
  /// Whether start_reducing() was called since take_sums(), and, for each parameter, whether it had a
  /// gradient.
  bool was_reduced() const { return !had_gradient_.empty(); }
  const std::vector<std::uint8_t>& had_gradient() const { return had_gradient_; }
  /// Adds this rank's part of the sums to the gradients of the parameters for which `use` is not 0. At rest.
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
  /// This rank's part in the dtype of computations, while it is sent.
  at::Tensor cast_shard_;
  std::optional<Work> gathering_;
  bool is_whole_ = false;
  /// Whole values in the parameters' own dtype, while they are shown.
  at::Tensor originals_;

  /// Of each parameter: what `.grad` is in the state that it is not in.
  std::vector<at::Tensor> hidden_gradients_;
  at::Tensor gradient_buffer_, reduced_, sum_;
  std::optional<Work> reducing_;
  std::vector<std::uint8_t> had_gradient_;
};

/// Moves "is the parameter's .grad" between a parameter and where it is kept.
inline void exchange_gradient(const at::Tensor& parameter, at::Tensor& kept) {
  at::Tensor& gradient = parameter.mutable_grad();
  std::swap(gradient, kept);
}

}  // namespace lockstep::parallel
