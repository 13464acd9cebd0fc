#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/deferred_reduction.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "parallel/fsdp/buffer_pool.hpp"
#include "parallel/fsdp/forward_order.hpp"
#include "parallel/fsdp/parameter_group.hpp"

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
  std::vector<ParameterGroup> parameter_groups;
  /// When its running forwards began, by the counter and by autograd's; forward may be re-entrant.
  struct Begin {
    std::int64_t clock;
    std::uint64_t sequence_number;
  };
  std::vector<Begin> running;
  /// Whether its parameters may get gradients now.
  bool is_in_backward = false;
};

/// A parameter: number `parameter` in a group of a unit.
struct ParameterLocation {
  std::size_t unit, group, parameter;
};

/// A module whose parameters are sharded.
///
/// A unit's parameters are unsharded in its forward and in its backward, and resharded between. The hooks of
/// forward say when a forward begins and ends. Of a backward, autograd announces only the beginning: a hook
/// on the outputs of each forward. Its end is concluded. A counter (`clock_`) gives each forward an interval:
///
///     clock           0    1    2    3    4    5    6    7
///     root            [----------------------------------]
///     layer 0              [----]
///     layer 1                        [--------------]
///     layer 0 again                       [----]           (layer 1 calls it: shared weights)
///
/// A recomputation in backward is a forward, too, with a later interval.
///
/// The engine runs nodes in the reverse order of their creation. So when the backward of call c begins, the
/// nodes of every forward that began after c's end have run, and other units that are in their backward end
/// it now (post_backward), unless one of their forwards contains c or is inside it. A unit with an earlier
/// forward, whose backward is still to come, is only resharded; with the last one its gradients are complete
/// and are reduce-scattered. What is left ends in a callback of the engine (finish_backward).
///
/// A unit's gathering starts before that of its forward: when the forward before it begins, whose kernels it
/// then overlaps (prefetch_forward). Which unit that will be is foretold from an earlier forward of the
/// module whose order all ranks had (ForwardOrder). One that was foretold wrongly is freed when another one
/// begins, so that at most one unit is gathered ahead.
///
/// Ranks gather in the order in which their hooks run, without agreeing first: a round trip before each unit
/// would delay its gather. If two ranks call units in different orders, they gather each other's weights. So
/// each rank hashes its order, and one all-reduce at the end of the backward compares the hashes
/// (append_order_hash), together with which parameters had a gradient on any rank: a parameter without one
/// must keep none, because an optimizer would move it even with zeros. A rank on a GPU that used all its
/// parameters reads the answer one backward later, so that the host does not wait for this one.
class FullySharded : public std::enable_shared_from_this<FullySharded> {
 public:
  FullySharded(const std::vector<NamedTensor>& all, const std::vector<NamedUnit>& named,
               const ShardGroups& shard_groups, const FullyShardOptions& shard_options);

  void pre_forward(std::size_t unit);
  void post_forward(std::size_t unit, const Tensors& outputs);
  void forward_failed(std::size_t unit) noexcept;
  std::optional<at::ScalarType> input_dtype() const {
    const bool casts = options.mp_policy.cast_forward_inputs && full_parameters_depth_ == 0;
    return casts ? options.mp_policy.param_dtype : std::nullopt;
  }
  std::optional<at::ScalarType> output_dtype(std::size_t unit) const {
    return unit == kRoot ? options.mp_policy.output_dtype : std::nullopt;
  }
  /// Drops the gradients that were accumulated under no_sync().
  void drop_unsharded_gradients();
  void unshard_all();
  void reshard_all() noexcept;
  /// This rank's part of new values of a parameter or of optimizer state. Throws UsageError while parameters
  /// are unsharded.
  at::Tensor take_part(const at::Tensor& parameter, const at::Tensor& whole);
  std::optional<std::vector<std::int64_t>> full_sizes(const at::Tensor& parameter) const;
  /// Where this rank's part of a parameter begins. Throws as with_parameter().
  std::int64_t part_begin(const at::Tensor& parameter) const;
  std::int64_t generation() const { return generation_; }
  /// Calls `use(group, number)` for the group that contains the parameter. Throws UsageError if the
  /// tensor is not a parameter of the module.
  template <class Use>
  auto with_parameter(const at::Tensor& parameter, const Use& use) const;

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
  void pre_backward(const ForwardCall& call);
  void post_backward(std::size_t unit, const ForwardCall& next);
  void prefetch(const ForwardCall& call);
  void prefetch_forward(std::size_t unit);
  /// Frees what was gathered ahead, if it is not the unit that begins; without one, in any case.
  void settle_prefetched(std::optional<std::size_t> unit = {});
  void finish_backward();
  std::vector<std::uint8_t> read_agreement();
  static void append_order_hash(std::size_t order, std::vector<std::uint8_t>& bytes);
  void check_order_hash(std::span<const std::uint8_t> greatest);
  void reduce(std::size_t unit);
  void wait_for_reduce_scatter();
  void reset_after_failed_step();
  void check_written_back();
  bool is_own_output(const at::Tensor& output, const ShardedUnit::Begin& begin) const;
  bool keeps_unsharded(std::size_t unit) const { return unit == kRoot || !options.reshard_after_forward; }
  template <class Visit>
  void for_each_group(const Visit& visit) {
    for (auto& unit : units_)
      for (auto& group : unit.parameter_groups) visit(group);
  }

  std::vector<NamedTensor> trained_;
  BufferPool pool_;
  std::vector<ShardedUnit> units_;
  /// Where each parameter is, by its implementation.
  std::unordered_map<const void*, ParameterLocation> locations_;
  /// The forwards since the module's last forward began, and earlier ones whose backward may still run,
  /// ordered by their end. Their backwards run in reverse order.
  std::vector<ForwardCall> calls_;
  ForwardOrder forward_order_;
  /// The unit that was gathered ahead of its forward.
  std::optional<std::size_t> prefetched_;
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
  int full_parameters_depth_ = 0;
  /// Why values that were given inside full_parameters() were not taken over, or "".
  std::string not_written_back_;
};

template <class Use>
auto FullySharded::with_parameter(const at::Tensor& parameter, const Use& use) const {
  const auto found = locations_.find(parameter.unsafeGetTensorImpl());
  if (found == locations_.end())
    throw UsageError("fully_shard: the tensor is not a parameter of the sharded module");
  const auto& [unit, group, number] = found->second;
  return use(units_[unit].parameter_groups[group], number);
}

/// The hooks around the forward of a unit of a sharded module.
std::shared_ptr<UnitHooks> hooks_of(const std::shared_ptr<FullySharded>& state, std::size_t unit);

/// Unshards a unit that a ShardedInit has sharded. *Collective* in that case.
void unshard(Unit& unit);

}  // namespace lockstep::parallel
