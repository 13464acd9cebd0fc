#include "lockstep/parallel/fully_shard.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "../module_agreement.hpp"
#include "lockstep/core/error.hpp"
#include "sharded_segment.hpp"

namespace lockstep {
namespace parallel {
using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::size_t kRoot = 0;

/// One unit and where its forwards and backwards are.
struct ShardedUnit {
  std::vector<ShardedSegment> segments;
  /// Forwards that run: it may call itself.
  int depth = 0;
  /// Forwards whose backward is to come, and backwards that have ended, since the last backward's end.
  int forwards = 0, backwards = 0;
  bool was_in_backward = false;
};

/// A module whose parameters are sharded.
class FullySharded : public std::enable_shared_from_this<FullySharded> {
 public:
  FullySharded(const std::vector<NamedTensor>& all, const std::vector<NamedUnit>& named,
               const ProcessGroup& process_group, const FullyShardOptions& shard_options);

  Tensors before_forward(std::size_t unit, Tensors inputs);
  Tensors after_forward(std::size_t unit, const Tensors& outputs);
  void forward_failed(std::size_t unit) noexcept;
  /// All of the unit's backward that depends on its inputs has run.
  void after_backward(std::size_t unit);
  void show_whole();
  void show_shards_again() noexcept;

  ProcessGroup group;
  FullyShardOptions options;
  std::vector<NamedTensor> trained;
  std::unique_ptr<UnitHooks> root_hooks;
  bool synchronise = true;

 private:
  void before_backward(std::size_t unit);
  void end_backward();
  void reduce(std::size_t unit);
  void finish_reducing();
  void forget_failed_step();
  bool keeps(std::size_t unit) const { return unit == kRoot || !options.reshard_after_forward; }
  template <class Visit>
  void for_each_segment(const Visit& visit) {
    for (auto& unit : units_)
      for (auto& segment : unit.segments) visit(segment);
  }

  BufferPool pool_;
  std::vector<ShardedUnit> units_;
  /// In which order the units' forwards ran, which their backwards take the other way.
  std::vector<std::size_t> order_;
  bool in_backward_ = false;
};

namespace {

/// Gives its inputs on, and tells when their gradients have been computed. It is made before the nodes of the
/// unit's forward, so the engine runs it after theirs.
struct BackwardEnd : torch::autograd::Function<BackwardEnd> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const std::shared_ptr<FullySharded>& state, std::int64_t unit) {
    context->set_materialize_grads(false);
    context->saved_data["unit"] = unit;
    context->saved_data["state"] = at::IValue::make_capsule(c10::make_intrusive<Holder>(state));
    return inputs.vec();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto holder = context->saved_data["state"].toCapsule();
    const auto& state = static_cast<const Holder&>(*holder).state;
    state->after_backward(static_cast<std::size_t>(context->saved_data["unit"].toInt()));
    gradients.resize(gradients.size() + 2);
    return gradients;
  }

 private:
  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<FullySharded> held) : state(std::move(held)) {}
    std::shared_ptr<FullySharded> state;
  };
};

class Hooks final : public UnitHooks {
 public:
  Hooks(std::weak_ptr<FullySharded> state, std::size_t unit) : state_(std::move(state)), unit_(unit) {}
  Tensors before_forward(Tensors inputs) override {
    return state()->before_forward(unit_, std::move(inputs));
  }
  Tensors after_forward(Tensors outputs) override { return state()->after_forward(unit_, outputs); }
  void forward_failed() noexcept override {
    if (const auto state = state_.lock()) state->forward_failed(unit_);
  }

 private:
  std::shared_ptr<FullySharded> state() const {
    if (auto state = state_.lock()) return state;
    throw UsageError("fully_shard: the module's wrapper is gone; keep it as long as the module is used");
  }

  std::weak_ptr<FullySharded> state_;
  std::size_t unit_;
};

/// For each tensor, known by its implementation, the number of the unit that gathers it.
std::unordered_map<const void*, std::size_t> owners_of(const std::vector<NamedTensor>& parameters,
                                                       const std::vector<NamedUnit>& units) {
  std::unordered_map<const void*, std::size_t> owners;
  for (const auto& entry : parameters) {
    std::size_t owner = kRoot, length = 0;
    for (std::size_t i = 0; i < units.size(); ++i) {
      const std::string prefix = units[i].name + ".";
      if (prefix.size() <= length || !entry.name.starts_with(prefix)) continue;
      owner = i + 1;
      length = prefix.size();
    }
    const auto [place, is_new] = owners.emplace(entry.tensor.unsafeGetTensorImpl(), owner);
    // Tied weights of several units.
    if (!is_new && place->second != owner) place->second = kRoot;
  }
  return owners;
}

std::string complaint_about_sharding(const std::vector<NamedTensor>& parameters,
                                     const std::vector<NamedUnit>& units, const ProcessGroup& group) {
  for (const auto& [name, unit] : units) {
    if (unit->has_hooks()) return "unit '" + name + "' is fully sharded already";
  }
  bool any = false;
  for (const auto& [name, tensor] : parameters) {
    any = any || tensor.requires_grad();
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

}  // namespace

FullySharded::FullySharded(const std::vector<NamedTensor>& all, const std::vector<NamedUnit>& named,
                           const ProcessGroup& process_group, const FullyShardOptions& shard_options)
    : group(process_group), options(shard_options), units_(named.size() + 1) {
  const auto parameters = without_repeats(all);
  for (const auto& entry : parameters) {
    if (entry.tensor.requires_grad()) trained.push_back(entry);
  }
  if (group.size() == 1) return;
  const auto owners = owners_of(all, named);
  // By unit, dtype, and whether it is trained.
  std::map<std::tuple<std::size_t, at::ScalarType, bool>, std::vector<NamedTensor>> segments;
  for (const auto& entry : parameters) {
    const auto owner = owners.at(entry.tensor.unsafeGetTensorImpl());
    const auto key = std::make_tuple(owner, entry.tensor.scalar_type(), entry.tensor.requires_grad());
    segments[key].push_back(entry);
  }
  for (auto& [key, members] : segments) {
    for (const auto& entry : members) group.broadcast(entry.tensor.detach());
    units_[std::get<0>(key)].segments.emplace_back(std::move(members), group, pool_);
  }
}

Tensors FullySharded::before_forward(std::size_t unit, Tensors inputs) {
  if (unit == kRoot && units_[kRoot].depth == 0) {
    forget_failed_step();
    // An optimizer has stepped since, or may have.
    for_each_segment([](ShardedSegment& segment) { segment.free_whole(); });
    order_.clear();
  }
  auto& self = units_[unit];
  for (auto& segment : self.segments) segment.start_gathering();
  for (auto& segment : self.segments) segment.show_whole();
  ++self.depth;
  if (!at::GradMode::is_enabled()) return inputs;
  order_.push_back(unit);
  const bool any = std::any_of(inputs.begin(), inputs.end(),
                               [](const at::Tensor& input) { return input.requires_grad(); });
  if (!any) return inputs;
  return BackwardEnd::apply(at::TensorList(inputs), shared_from_this(), static_cast<std::int64_t>(unit));
}

Tensors FullySharded::after_forward(std::size_t unit, const Tensors& outputs) {
  auto& self = units_[unit];
  bool has_backward = false;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    has_backward = true;
    output.register_hook(
        [state = shared_from_this(), unit](const at::Tensor&) { state->before_backward(unit); });
  }
  if (has_backward) ++self.forwards;
  if (--self.depth > 0) return outputs;
  for (auto& segment : self.segments) segment.show_shards(has_backward && keeps(unit));
  return outputs;
}

void FullySharded::forward_failed(std::size_t unit) noexcept {
  auto& self = units_[unit];
  if (--self.depth > 0) return;
  for (auto& segment : self.segments) segment.show_shards(false);
}

void FullySharded::before_backward(std::size_t unit) {
  if (!in_backward_) {
    in_backward_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [state = shared_from_this()] { state->end_backward(); });
  }
  auto& self = units_[unit];
  self.was_in_backward = true;
  for (auto& segment : self.segments) segment.start_gathering();
  for (auto& segment : self.segments) segment.show_whole();
  if (!options.backward_prefetch) return;
  const auto here = std::find(order_.rbegin(), order_.rend(), unit);
  if (here == order_.rend() || here + 1 == order_.rend()) return;
  for (auto& segment : units_[*(here + 1)].segments) segment.start_gathering();
}

void FullySharded::after_backward(std::size_t unit) {
  auto& self = units_[unit];
  if (++self.backwards < self.forwards) {
    for (auto& segment : self.segments) segment.show_shards(keeps(unit));
    return;
  }
  reduce(unit);
}

void FullySharded::reduce(std::size_t unit) {
  auto& self = units_[unit];
  for (auto& segment : self.segments) segment.show_shards(false);
  self.was_in_backward = false;
  if (!synchronise) return;
  // One unit's gradients travel at a time: their buffers are whole.
  finish_reducing();
  for (auto& segment : self.segments) {
    if (segment.is_trained()) segment.start_reducing();
  }
}

void FullySharded::finish_reducing() {
  for_each_segment([](ShardedSegment& segment) { segment.finish_reducing(); });
}

void FullySharded::end_backward() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    auto& self = units_[unit];
    const bool has_gradients = std::any_of(self.segments.begin(), self.segments.end(),
                                           [](const auto& segment) { return segment.has_gradients(); });
    if (self.was_in_backward || has_gradients) reduce(unit);
    self.forwards = self.backwards = 0;
  }
  finish_reducing();
  // What was gathered for a backward that did not come.
  for_each_segment([](ShardedSegment& segment) { segment.show_shards(false); });
  in_backward_ = false;

  // A parameter without a gradient on any rank gets none: an optimizer would change it all the same.
  std::vector<std::uint8_t> used;
  for_each_segment([&](ShardedSegment& segment) {
    used.insert(used.end(), segment.had_gradient().begin(), segment.had_gradient().end());
  });
  if (used.empty()) return;
  const at::Tensor flags = at::tensor(at::ArrayRef<std::uint8_t>(used), at::kByte).to(group.device());
  group.all_reduce(flags, ReduceOp::max);
  const at::Tensor agreed = flags.cpu();
  std::span<const std::uint8_t> rest(agreed.const_data_ptr<std::uint8_t>(), used.size());
  for_each_segment([&](ShardedSegment& segment) {
    if (!segment.was_reduced()) return;
    const std::size_t count = segment.had_gradient().size();
    segment.take_sums(rest.first(count));
    rest = rest.subspan(count);
  });
}

/// A forward or a backward that threw leaves parameters whole and gradients half summed.
void FullySharded::forget_failed_step() {
  if (in_backward_) {
    for_each_segment([](ShardedSegment& segment) {
      segment.show_shards(false);
      segment.drop_gradients();
      segment.finish_reducing();
      if (segment.was_reduced())
        segment.take_sums(std::vector<std::uint8_t>(segment.had_gradient().size(), 0));
    });
    for (auto& unit : units_) unit.was_in_backward = false;
  }
  in_backward_ = false;
  for (auto& unit : units_) unit.depth = 0;
}

void FullySharded::show_whole() {
  forget_failed_step();
  for_each_segment([](ShardedSegment& segment) { segment.free_whole(); });
  for_each_segment([](ShardedSegment& segment) { segment.show_whole(); });
}

void FullySharded::show_shards_again() noexcept {
  for_each_segment([](ShardedSegment& segment) {
    segment.take_over_whole();
    segment.show_shards(false);
  });
}

}  // namespace parallel

FullyShardedDataParallelBase::FullyShardedDataParallelBase(const std::vector<NamedTensor>& parameters,
                                                           const std::vector<NamedTensor>& buffers,
                                                           const std::vector<parallel::NamedUnit>& units,
                                                           const ProcessGroup& group,
                                                           const FullyShardOptions& options) {
  const std::string complaint = parallel::complaint_about_sharding(parameters, units, group);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
  } else {
    std::string summary =
        fmt::format("reshard_after_forward {}, {} units", options.reshard_after_forward, units.size());
    parallel::check_agreement(group, {parameters, buffers, std::move(summary), complaint});
    for (const auto& entry : buffers) group.broadcast(entry.tensor);
  }
  state_ = std::make_shared<parallel::FullySharded>(parameters, units, group, options);
  if (group.size() == 1) return;
  state_->root_hooks = std::make_unique<parallel::Hooks>(state_, parallel::kRoot);
  for (std::size_t i = 0; i < units.size(); ++i)
    units[i].unit->set_hooks(std::make_shared<parallel::Hooks>(state_, i + 1));
}

parallel::UnitHooks* FullyShardedDataParallelBase::root_hooks() const { return state_->root_hooks.get(); }

void FullyShardedDataParallelBase::zero_grad(bool set_to_none) {
  for (const auto& entry : state_->trained) {
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
  std::vector<at::Tensor> gradients;
  at::Tensor squares = at::zeros({1}, at::TensorOptions(at::kDouble).device(state_->group.device()));
  for (const auto& entry : state_->trained) {
    const at::Tensor& gradient = entry.tensor.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient);
    squares.add_(at::linalg_vector_norm(gradient, 2, at::nullopt, false, at::kDouble).square());
  }
  if (state_->group.size() > 1) state_->group.all_reduce(squares);
  const at::Tensor norm = squares.sqrt();
  const at::Tensor factor = norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  for (const auto& gradient : gradients) gradient.mul_(factor.to(gradient.scalar_type()));
  return norm.squeeze().to(at::kFloat);
}

const std::vector<NamedTensor>& FullyShardedDataParallelBase::parameters() const { return state_->trained; }
const ProcessGroup& FullyShardedDataParallelBase::process_group() const { return state_->group; }
const FullyShardOptions& FullyShardedDataParallelBase::options() const { return state_->options; }

FullyShardedDataParallelBase::NoSync::NoSync(FullyShardedDataParallelBase& model)
    : state_(model.state_), before_(std::exchange(model.state_->synchronise, false)) {}
FullyShardedDataParallelBase::NoSync::~NoSync() { state_->synchronise = before_; }

FullyShardedDataParallelBase::FullParameters::FullParameters(FullyShardedDataParallelBase& model)
    : state_(model.state_) {
  state_->show_whole();
}
FullyShardedDataParallelBase::FullParameters::~FullParameters() { state_->show_shards_again(); }

}  // namespace lockstep
