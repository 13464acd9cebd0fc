#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../comm/deferred_reduction.hpp"
#include "buffer_pool.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "sharded_segment.hpp"

namespace lockstep::parallel {

using Tensors = std::vector<at::Tensor>;

inline constexpr std::size_t kRoot = 0;

/// One run of a unit's forward, from one value of a counter to another.
struct ForwardCall {
  std::size_t unit;
  std::int64_t begin, end;
  /// Identifies the weights that it used: how often they had been overwritten before.
  std::int64_t generation;
  /// Expires with the graph.
  std::weak_ptr<bool> had_backward;
};

struct ShardedUnit {
  std::vector<ShardedSegment> segments;
  /// When its running forwards began, by the counter and by autograd's; forward may be re-entrant.
  struct Begin {
    std::int64_t clock;
    std::uint64_t sequence_number;
  };
  std::vector<Begin> begun;
  /// Whether its parameters may get gradients now.
  bool is_in_backward = false;
};

/// A parameter: number `parameter` in a segment of a unit.
struct ParameterPlace {
  std::size_t unit, segment, parameter;
};

/// A module whose parameters are sharded.
class FullySharded : public std::enable_shared_from_this<FullySharded> {
 public:
  FullySharded(const std::vector<NamedTensor>& all, const std::vector<NamedUnit>& named,
               const ShardGroups& shard_groups, const FullyShardOptions& shard_options);

  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit, const Tensors& outputs);
  void forward_failed(std::size_t unit) noexcept;
  std::optional<at::ScalarType> input_dtype() const {
    const bool casts = options.mp_policy.cast_forward_inputs && whole_ == 0;
    return casts ? options.mp_policy.param_dtype : std::nullopt;
  }
  std::optional<at::ScalarType> output_dtype(std::size_t unit) const {
    return unit == kRoot ? options.mp_policy.output_dtype : std::nullopt;
  }
  /// Drops the gradients that were accumulated under no_sync().
  void drop_unsynchronised();
  void show_whole();
  void show_shards_again() noexcept;
  /// This rank's part of new values of a parameter or of optimizer state. Throws UsageError while parameters
  /// are unsharded.
  at::Tensor take_part(const at::Tensor& parameter, const at::Tensor& whole);
  std::optional<std::vector<std::int64_t>> full_sizes(const at::Tensor& parameter) const;
  /// Calls `use(segment, number)` for the segment that contains the parameter. Throws UsageError if the
  /// tensor is not a parameter of the module.
  template <class Use>
  at::Tensor with_place(const at::Tensor& parameter, const Use& use);

  ShardGroups groups;
  FullyShardOptions options;
  /// All parameters, each once.
  std::vector<NamedTensor> parameters;
  /// Those that require a gradient now.
  const std::vector<NamedTensor>& trained();
  std::shared_ptr<UnitHooks> root_hooks;
  bool synchronise = true;
  /// False in a group of one without a policy; otherwise ranks have parts, or parameters have another dtype
  /// at rest.
  bool is_sharded() const { return groups.all.size() > 1 || options.mp_policy.changes_anything(); }

 private:
  void before_backward(const ForwardCall& call);
  void leave(std::size_t unit, const ForwardCall& next);
  void prefetch(const ForwardCall& call);
  void end_backward();
  std::vector<std::uint8_t> take_agreed();
  static void add_order(std::size_t order, std::vector<std::uint8_t>& bytes);
  void check_order(std::span<const std::uint8_t> greatest) const;
  void reduce(std::size_t unit);
  void finish_reducing();
  void forget_failed_step();
  void check_taken_over();
  bool is_own_output(const at::Tensor& output, const ShardedUnit::Begin& begin) const;
  bool keeps(std::size_t unit) const { return unit == kRoot || !options.reshard_after_forward; }
  template <class Visit>
  void for_each_segment(const Visit& visit) {
    for (auto& unit : units_)
      for (auto& segment : unit.segments) visit(segment);
  }

  std::vector<NamedTensor> trained_;
  BufferPool pool_;
  std::vector<ShardedUnit> units_;
  /// The place of each parameter, by its implementation.
  std::unordered_map<const void*, ParameterPlace> places_;
  /// The forwards since the module's last forward began, and earlier ones whose backward may still run,
  /// ordered by their end. Their backwards run in reverse order.
  std::vector<ForwardCall> calls_;
  /// When the module's last forward began.
  std::int64_t last_began_ = 0;
  /// The hash of the orders of the forwards whose gradients no rank has reduced yet.
  std::size_t order_ = 0;
  std::int64_t clock_ = 0;
  std::int64_t generation_ = 0;
  bool in_backward_ = false;
  /// Which parameters had gradients on any rank, and whether all ranks called the units in one order.
  comm::DeferredReduction agreement_;
  /// Number of FullParameters objects; if above 0, forward does not gather.
  int whole_ = 0;
  /// Why values that were given inside full_parameters() were not taken over, or "".
  std::string not_taken_over_;
};

template <class Use>
at::Tensor FullySharded::with_place(const at::Tensor& parameter, const Use& use) {
  const auto place = places_.find(parameter.unsafeGetTensorImpl());
  if (place == places_.end())
    throw UsageError("fully_shard: the tensor is not a parameter of the sharded module");
  const auto& [unit, segment, number] = place->second;
  return use(units_[unit].segments[segment], number);
}

/// The hooks around the forward of a unit of a sharded module.
std::shared_ptr<UnitHooks> hooks_of(const std::shared_ptr<FullySharded>& state, std::size_t unit);

/// Unshards a unit that a ShardedInit has sharded. *Collective* in that case.
void make_whole(Unit& unit);

}  // namespace lockstep::parallel
