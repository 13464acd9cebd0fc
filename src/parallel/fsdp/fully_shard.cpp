#include "lockstep/parallel/fully_shard.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "parallel/fsdp/fully_sharded.hpp"
#include "parallel/fsdp/initially_sharded_unit.hpp"
#include "parallel/fsdp/sharded_parameter_registry.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep {
namespace parallel {

ShardGroups::ShardGroups(const ParallelContext& context)
    : ShardGroups(context.get_group(ParallelMode::data)) {
  if (context.get_world_size(ParallelMode::shard) == 1) return;
  shard = context.get_group(ParallelMode::shard);
  if (context.get_world_size(ParallelMode::replica) > 1) replica = context.get_group(ParallelMode::replica);
}

namespace {

/// Those that there are, complex ones as pairs of numbers.
std::vector<at::Tensor> real_gradients(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& entry : parameters) {
    const at::Tensor& gradient = entry.tensor.grad();
    if (gradient.defined())
      gradients.push_back(gradient.is_complex() ? at::view_as_real(gradient) : gradient);
  }
  return gradients;
}

/// The units of these classes; all units if `names` is empty.
std::vector<NamedUnit> units_of_classes(const std::vector<NamedUnit>& units,
                                        const std::vector<std::string>& names) {
  if (names.empty()) return units;
  std::vector<NamedUnit> chosen;
  std::set<std::string> missing;
  for (const auto& name : names) missing.insert(to_lower_case(name));
  const auto wanted = missing;
  std::set<std::string> present;
  for (const auto& unit : units) {
    present.insert(unit.class_name);
    if (!wanted.contains(to_lower_case(unit.class_name))) continue;
    missing.erase(to_lower_case(unit.class_name));
    chosen.push_back(unit);
  }
  if (missing.empty()) return chosen;
  throw UsageError(
      fmt::format("fully_shard: transformer_cls_names_to_wrap has '{}', but the model's units are of {}",
                  fmt::join(names, "', '"),
                  present.empty() ? "no class: it has none" : fmt::format("{}", fmt::join(present, ", "))));
}

std::string find_obstacle(const std::vector<NamedTensor>& parameters, const std::vector<NamedUnit>& units,
                          const ProcessGroup& group) {
  std::set<const void*> initially_sharded;
  for (const auto& [name, unit, class_name] : units) {
    if (const auto* const before = find_initially_sharded(*unit)) {
      before->visit_parameters([&](const at::Tensor& parameter, auto, auto) {
        initially_sharded.insert(parameter.unsafeGetTensorImpl());
      });
    } else if (unit->hooks() != nullptr) {
      return fmt::format("unit '{}' is fully sharded already", name);
    }
  }
  bool any = false;
  for (const auto& [name, tensor] : parameters) {
    any = any || tensor.requires_grad();
    if (!initially_sharded.contains(tensor.unsafeGetTensorImpl()) &&
        ShardedParameterRegistry::contain(tensor))
      return fmt::format("parameter '{}' is fully sharded already", name);
    if (tensor.device() != group.device()) {
      return fmt::format(
          "parameter '{}' is on {}, but the process group was made for {}: move the module to that device "
          "before sharding it",
          name, tensor.device().str(), group.device().str());
    }
    if (tensor.requires_grad() && torch::autograd::impl::try_get_grad_accumulator(tensor) != nullptr) {
      return fmt::format(
          "parameter '{}' is held by DistributedDataParallel or by the graph of a forward: shard a module "
          "that "
          "neither holds",
          name);
    }
  }
  return any ? "" : "fully_shard is not needed for a module without a parameter that requires a gradient";
}

/// The parameters with their unsharded shapes.
std::vector<NamedTensor> unsharded_forms(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> forms;
  std::map<const void*, at::Tensor> done;
  for (const auto& entry : parameters) {
    // A tensor with several names stays one tensor.
    auto& form = done[entry.tensor.unsafeGetTensorImpl()];
    if (!form.defined()) {
      form = at::empty(initial_sizes(entry.tensor), entry.tensor.options().device(at::kMeta))
                 .set_requires_grad(entry.tensor.requires_grad());
    }
    forms.push_back({entry.name, form});
  }
  return forms;
}

/// The parts on which ranks must agree.
std::string describe_policy(const MixedPrecisionPolicy& policy) {
  std::string text;
  const auto add = [&](const char* name, std::optional<at::ScalarType> dtype) {
    if (dtype) text += fmt::format(", {} {}", name, c10::toString(*dtype));
  };
  add("param_dtype", policy.param_dtype);
  add("reduce_dtype", policy.reduce_dtype);
  return text;
}

}  // namespace
}  // namespace parallel

FullyShardedDataParallelBase::FullyShardedDataParallelBase(const std::vector<NamedTensor>& parameters,
                                                           const std::vector<NamedTensor>& buffers,
                                                           const std::vector<parallel::NamedUnit>& all_units,
                                                           const parallel::ShardGroups& groups,
                                                           const FullyShardOptions& options) {
  const auto units = parallel::units_of_classes(all_units, options.transformer_cls_names_to_wrap);
  const ProcessGroup& group = groups.all;
  const std::string complaint = parallel::find_obstacle(parameters, all_units, group);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
  } else {
    std::string summary = fmt::format("reshard_after_forward {}, {} units{}", options.reshard_after_forward,
                                      units.size(), parallel::describe_policy(options.mp_policy));
    parallel::check_agreement(
        group, {parallel::unsharded_forms(parameters), buffers, std::move(summary), complaint});
    for (const auto& entry : buffers) parallel::copy_values(group, entry.tensor);
  }
  for (const auto& [name, unit, class_name] : all_units) {
    const bool is_chosen =
        std::any_of(units.begin(), units.end(), [&](const auto& chosen) { return chosen.unit == unit; });
    if (!is_chosen) parallel::unshard(*unit);
  }
  state_ = std::make_shared<parallel::FullySharded>(parameters, units, groups, options);
  if (!state_->is_sharded()) return;
  state_->root_hooks = parallel::hooks_of(state_, parallel::kRoot);
  for (std::size_t i = 0; i < units.size(); ++i) units[i].unit->set_hooks(parallel::hooks_of(state_, i + 1));
}

parallel::UnitHooks* FullyShardedDataParallelBase::root_hooks() const { return state_->root_hooks.get(); }

void FullyShardedDataParallelBase::zero_grad(bool set_to_none) {
  state_->drop_unsharded_gradients();
  for (const auto& entry : state_->parameters) {
    at::Tensor& gradient = entry.tensor.mutable_grad();
    if (set_to_none) {
      gradient.reset();
    } else if (gradient.defined()) {
      const at::NoGradGuard no_grad;
      gradient.zero_();
    }
  }
}

at::Tensor FullyShardedDataParallelBase::clip_grad_norm_(double max_norm) {
  if (!(max_norm > 0))
    throw UsageError(fmt::format("clip_grad_norm_: max_norm must be more than 0, but is {}", max_norm));
  const at::NoGradGuard no_grad;
  const auto gradients = parallel::real_gradients(state_->parameters);
  at::Tensor squares = at::zeros({1}, at::TensorOptions(at::kDouble).device(state_->groups.all.device()));
  // A list of tensors is a few kernels, one by one they are several for each.
  if (!gradients.empty())
    squares.add_(at::stack(at::_foreach_norm(gradients, 2, at::kDouble)).square_().sum());
  if (state_->groups.shard.size() > 1) state_->groups.shard.all_reduce(squares);
  // Without a dimension: in a group of one, a gradient may have none.
  const at::Tensor norm = squares.sqrt().squeeze();
  // Only measured. The factor of an infinite norm would be NaN.
  if (std::isinf(max_norm)) return norm.to(at::kFloat);
  const at::Tensor factor = norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (const auto& gradient : gradients) by_dtype[gradient.scalar_type()].push_back(gradient);
  for (const auto& [dtype, list] : by_dtype) at::_foreach_mul_(list, factor.to(dtype));
  return norm.to(at::kFloat);
}

std::optional<std::vector<std::int64_t>> FullyShardedDataParallelBase::full_sizes(
    const at::Tensor& parameter) const {
  return state_->full_sizes(parameter);
}

at::Tensor FullyShardedDataParallelBase::gather_full(const at::Tensor& parameter,
                                                     const at::Tensor& part) const {
  if (!state_->is_sharded()) return part;
  return state_->with_parameter(
      parameter, [&](const auto& group, std::size_t number) { return group.gather(number, part); });
}

at::Tensor FullyShardedDataParallelBase::take_part(const at::Tensor& parameter,
                                                   const at::Tensor& whole) const {
  if (!state_->is_sharded()) return whole;
  return state_->take_part(parameter, whole);
}

std::int64_t FullyShardedDataParallelBase::part_begin(const at::Tensor& parameter) const {
  return state_->part_begin(parameter);
}

std::int64_t FullyShardedDataParallelBase::generation() const { return state_->generation(); }

const std::vector<NamedTensor>& FullyShardedDataParallelBase::parameters() const { return state_->trained(); }
const ProcessGroup& FullyShardedDataParallelBase::process_group() const { return state_->groups.all; }
const FullyShardOptions& FullyShardedDataParallelBase::options() const { return state_->options; }

FullyShardedDataParallelBase::NoSync::NoSync(FullyShardedDataParallelBase& model)
    : state_(model.state_), before_(std::exchange(model.state_->synchronise, false)) {}
FullyShardedDataParallelBase::NoSync::~NoSync() { state_->synchronise = before_; }

FullyShardedDataParallelBase::FullParameters::FullParameters(FullyShardedDataParallelBase& model)
    : state_(model.state_) {
  state_->unshard_all();
}
FullyShardedDataParallelBase::FullParameters::~FullParameters() { state_->reshard_all(); }

}  // namespace lockstep
