#include "lockstep/parallel/fully_shard.hpp"

#include <ATen/ATen.h>
#include <c10/util/hash.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>

#include "../module_agreement.hpp"
#include "divided_unit.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "sharded_parameters.hpp"
#include "sharded_segment.hpp"

namespace lockstep {
namespace parallel {
using Tensors = std::vector<at::Tensor>;

constexpr std::size_t kRoot = 0;

/// One run of a unit's forward, between two ticks of a clock.
struct ForwardCall {
  std::size_t unit;
  std::int64_t begin, end;
  /// Which weights it computed with: how often others had been written over them.
  std::int64_t generation;
};

struct ShardedUnit {
  std::vector<ShardedSegment> segments;
  /// When its forwards that run began: it may call itself.
  std::vector<std::int64_t> begun;
  /// Its parameters may get gradients now.
  bool is_in_backward = false;
};

/// A parameter: number `parameter` of a segment of a unit.
struct Place {
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
  void show_whole();
  void show_shards_again() noexcept;
  /// Of what is written over the parameters or an optimizer's state. Throws UsageError while they are whole.
  at::Tensor take_part(const at::Tensor& parameter, const at::Tensor& whole);
  std::optional<std::vector<std::int64_t>> full_sizes(const at::Tensor& parameter) const;
  /// `use(segment, number)` of the segment that holds the parameter. Throws UsageError for another tensor.
  template <class Use>
  at::Tensor with_place(const at::Tensor& parameter, const Use& use);

  ShardGroups groups;
  FullyShardOptions options;
  std::vector<NamedTensor> trained;
  std::unique_ptr<UnitHooks> root_hooks;
  bool synchronise = true;
  /// Each rank may have a part, or parameters another dtype at rest: not in a group of one without a policy.
  bool is_sharded() const { return groups.all.size() > 1 || options.mp_policy.changes_anything(); }

 private:
  void before_backward(const ForwardCall& call);
  void leave(std::size_t unit, const ForwardCall& next);
  void prefetch(const ForwardCall& call);
  void end_backward();
  void add_order(std::vector<std::uint8_t>& bytes) const;
  void check_order(std::span<const std::uint8_t> greatest) const;
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
  /// Where each parameter is, known by its implementation.
  std::unordered_map<const void*, Place> places_;
  /// The forwards since the last one of the module began, by their end. Their backwards come the other way.
  std::vector<ForwardCall> calls_;
  std::int64_t clock_ = 0;
  std::int64_t generation_ = 0;
  bool in_backward_ = false;
  /// How many FullParameters live: forward finds everything there.
  int whole_ = 0;
};

ShardGroups::ShardGroups(const ParallelContext& context)
    : ShardGroups(context.get_group(ParallelMode::data)) {
  if (context.get_world_size(ParallelMode::shard) == 1) return;
  shard = context.get_group(ParallelMode::shard);
  if (context.get_world_size(ParallelMode::replica) > 1) replica = context.get_group(ParallelMode::replica);
}

namespace {

class Hooks final : public UnitHooks {
 public:
  Hooks(std::weak_ptr<FullySharded> state, std::size_t unit) : state_(std::move(state)), unit_(unit) {}
  void before_forward() override { state()->before_forward(unit_); }
  std::optional<at::ScalarType> input_dtype() const override { return state()->input_dtype(); }
  std::optional<at::ScalarType> output_dtype() const override { return state()->output_dtype(unit_); }
  void after_forward(const Tensors& outputs) override { state()->after_forward(unit_, outputs); }
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

/// Where a ShardedInit has divided it.
void make_whole(Unit& unit) {
  const auto hooks = unit.hooks();
  auto* const before = divided(unit);
  if (before == nullptr) return;
  unit.set_hooks(nullptr);
  before->make_whole();
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

/// The units of these classes; all without any.
std::vector<NamedUnit> units_of_classes(const std::vector<NamedUnit>& units,
                                        const std::vector<std::string>& names) {
  if (names.empty()) return units;
  std::vector<NamedUnit> chosen;
  std::set<std::string> missing;
  for (const auto& name : names) missing.insert(lower(name));
  const auto wanted = missing;
  std::set<std::string> present;
  for (const auto& unit : units) {
    present.insert(unit.class_name);
    if (!wanted.contains(lower(unit.class_name))) continue;
    missing.erase(lower(unit.class_name));
    chosen.push_back(unit);
  }
  if (missing.empty()) return chosen;
  throw UsageError(
      fmt::format("fully_shard: transformer_cls_names_to_wrap has '{}', but the model's units are of {}",
                  fmt::join(names, "', '"),
                  present.empty() ? "no class: it has none" : fmt::format("{}", fmt::join(present, ", "))));
}

std::string complaint_about_sharding(const std::vector<NamedTensor>& parameters,
                                     const std::vector<NamedUnit>& units, const ProcessGroup& group) {
  std::set<const void*> divided_before;
  for (const auto& [name, unit, class_name] : units) {
    if (const auto* const before = divided(*unit)) {
      before->visit_places([&](const at::Tensor& parameter, auto, auto) {
        divided_before.insert(parameter.unsafeGetTensorImpl());
      });
    } else if (unit->hooks() != nullptr) {
      return "unit '" + name + "' is fully sharded already";
    }
  }
  bool any = false;
  for (const auto& [name, tensor] : parameters) {
    any = any || tensor.requires_grad();
    if (!divided_before.contains(tensor.unsafeGetTensorImpl()) && ShardedParameters::contain(tensor))
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

/// With the shapes that they have when they are whole.
std::vector<NamedTensor> whole_forms(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> forms;
  std::map<const void*, at::Tensor> done;
  for (const auto& entry : parameters) {
    // A tensor that has several names stays one tensor.
    auto& form = done[entry.tensor.unsafeGetTensorImpl()];
    if (!form.defined()) {
      form = at::empty(initial_sizes(entry.tensor), entry.tensor.options().device(at::kMeta))
                 .set_requires_grad(entry.tensor.requires_grad());
    }
    forms.push_back({entry.name, form});
  }
  return forms;
}

/// What ranks must agree on.
std::string in_words(const MixedPrecisionPolicy& policy) {
  std::string text;
  const auto add = [&](const char* name, std::optional<at::ScalarType> dtype) {
    if (dtype) text += fmt::format(", {} {}", name, c10::toString(*dtype));
  };
  add("param_dtype", policy.param_dtype);
  add("reduce_dtype", policy.reduce_dtype);
  return text;
}

}  // namespace

FullySharded::FullySharded(const std::vector<NamedTensor>& all, const std::vector<NamedUnit>& named,
                           const ShardGroups& shard_groups, const FullyShardOptions& shard_options)
    : groups(shard_groups), options(shard_options), units_(named.size() + 1) {
  const auto parameters = without_repeats(all);
  for (const auto& entry : parameters) {
    if (entry.tensor.requires_grad()) trained.push_back(entry);
  }
  if (!is_sharded()) return;
  const auto owners = owners_of(all, named);
  // By unit, dtype, and whether it is trained.
  std::map<std::tuple<std::size_t, at::ScalarType, bool>, std::vector<NamedTensor>> segments;
  for (const auto& entry : parameters) {
    const auto owner = owners.at(entry.tensor.unsafeGetTensorImpl());
    const auto key = std::make_tuple(owner, entry.tensor.scalar_type(), entry.tensor.requires_grad());
    segments[key].push_back(entry);
  }
  // A unit that a ShardedInit has divided is whole from here to the end of its segments; one with tied
  // weights, which are the root's, from the beginning.
  std::vector<bool> is_early(units_.size(), false);
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (const auto* const before = divided(*named[i].unit)) {
      before->visit_places([&](const at::Tensor& parameter, auto, auto) {
        is_early[i + 1] = is_early[i + 1] || owners.at(parameter.unsafeGetTensorImpl()) != i + 1;
      });
    }
  }
  for (std::size_t unit = 1; unit < units_.size(); ++unit)
    if (is_early[unit]) make_whole(*named[unit - 1].unit);
  for (auto& [key, members] : segments) {
    if (const auto unit = std::get<0>(key); unit != kRoot) make_whole(*named[unit - 1].unit);
    for (const auto& entry : members) {
      if (groups.all.size() > 1) groups.all.broadcast(entry.tensor.detach());
      ShardedParameters::add(entry.tensor);
    }
    const std::size_t unit = std::get<0>(key);
    for (std::size_t i = 0; i < members.size(); ++i)
      places_.emplace(members[i].tensor.unsafeGetTensorImpl(), Place{unit, units_[unit].segments.size(), i});
    units_[unit].segments.emplace_back(std::move(members), groups, options.mp_policy, pool_);
  }
}

void FullySharded::before_forward(std::size_t unit) {
  if (whole_ > 0) return;
  auto& self = units_[unit];
  if (unit == kRoot && self.begun.empty()) {
    forget_failed_step();
    for_each_segment([](ShardedSegment& segment) {
      segment.check_parts();
      // An optimizer may have stepped since.
      segment.free_whole();
    });
    calls_.clear();
  }
  for (auto& segment : self.segments) segment.start_gathering();
  for (auto& segment : self.segments) segment.show_whole();
  self.begun.push_back(clock_++);
}

void FullySharded::after_forward(std::size_t unit, const Tensors& outputs) {
  if (whole_ > 0) return;
  auto& self = units_[unit];
  const ForwardCall call{
      .unit = unit, .begin = self.begun.back(), .end = clock_++, .generation = generation_};
  self.begun.pop_back();
  bool has_backward = false;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    has_backward = true;
    output.register_hook(
        [state = shared_from_this(), call](const at::Tensor&) { state->before_backward(call); });
  }
  if (has_backward) calls_.push_back(call);
  // In a recomputation its backward runs around it.
  if (!self.begun.empty() || self.is_in_backward) return;
  for (auto& segment : self.segments) segment.show_shards(has_backward && keeps(unit));
}

void FullySharded::forward_failed(std::size_t unit) noexcept {
  if (whole_ > 0) return;
  auto& self = units_[unit];
  self.begun.pop_back();
  if (!self.begun.empty()) return;
  for (auto& segment : self.segments) segment.show_shards(false);
}

/// The engine runs the nodes of later forwards first. So where the backward of `call` begins, all nodes of
/// forwards that began after `call` ended have run.
void FullySharded::before_backward(const ForwardCall& call) {
  if (call.generation != generation_) {
    throw UsageError(
        "fully_shard: weights were loaded or written between a forward and its backward, which would compute "
        "with other ones: call forward again");
  }
  if (!in_backward_) {
    in_backward_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [state = shared_from_this()] { state->end_backward(); });
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (unit != call.unit && units_[unit].is_in_backward) leave(unit, call);
  }
  auto& self = units_[call.unit];
  self.is_in_backward = true;
  for (auto& segment : self.segments) segment.start_gathering();
  for (auto& segment : self.segments) segment.show_whole();
  if (options.backward_prefetch) prefetch(call);
}

/// The backward goes on from a unit to the call `next`.
void FullySharded::leave(std::size_t unit, const ForwardCall& next) {
  bool has_earlier_one = false;
  for (const auto& call : calls_) {
    if (call.unit != unit || call.begin > next.end) continue;
    // Around `next`, or inside of it: one's output may be the other's.
    if (call.end > next.begin) return;
    has_earlier_one = true;
  }
  if (!has_earlier_one) return reduce(unit);
  units_[unit].is_in_backward = false;
  for (auto& segment : units_[unit].segments) segment.show_shards(keeps(unit));
}

/// Gathers what the backward needs after `call`.
void FullySharded::prefetch(const ForwardCall& call) {
  const auto here = std::find_if(calls_.rbegin(), calls_.rend(),
                                 [&](const ForwardCall& other) { return other.end == call.end; });
  if (here == calls_.rend() || here + 1 == calls_.rend()) return;
  for (auto& segment : units_[(here + 1)->unit].segments) segment.start_gathering();
}

void FullySharded::reduce(std::size_t unit) {
  auto& self = units_[unit];
  for (auto& segment : self.segments) segment.show_shards(false);
  self.is_in_backward = false;
  if (!synchronise) {
    for (auto& segment : self.segments) segment.keep_gradients();
    return;
  }
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
    if (self.is_in_backward || has_gradients) reduce(unit);
  }
  finish_reducing();
  // What was gathered for a backward that did not come.
  for_each_segment([](ShardedSegment& segment) { segment.show_shards(false); });

  // A parameter without a gradient on any rank gets none: an optimizer would change it all the same.
  std::vector<std::uint8_t> used;
  for_each_segment([&](ShardedSegment& segment) {
    used.insert(used.end(), segment.had_gradient().begin(), segment.had_gradient().end());
  });
  if (used.empty()) {
    in_backward_ = false;
    return;
  }
  const std::size_t parameters = used.size();
  add_order(used);
  const at::Tensor flags = at::tensor(at::ArrayRef<std::uint8_t>(used), at::kByte).to(groups.all.device());
  groups.all.all_reduce(flags, ReduceOp::max);
  const at::Tensor agreed = flags.cpu();
  std::span<const std::uint8_t> rest(agreed.const_data_ptr<std::uint8_t>(), used.size());
  check_order(rest.subspan(parameters));
  in_backward_ = false;
  for_each_segment([&](ShardedSegment& segment) {
    if (!segment.was_reduced()) return;
    const std::size_t count = segment.had_gradient().size();
    segment.take_sums(rest.first(count));
    rest = rest.subspan(count);
  });
}

/// Adds two numbers for the order of the forwards, of which the greatest of all ranks add up to all ones
/// where that is the same.
void FullySharded::add_order(std::vector<std::uint8_t>& bytes) const {
  std::size_t order = calls_.size();
  for (const auto& call : calls_) order = c10::hash_combine(order, call.unit);
  for (const std::size_t number : {order, ~order})
    for (std::size_t i = 0; i < sizeof number; ++i) bytes.push_back(number >> (8 * i) & 0xFF);
}

void FullySharded::check_order(std::span<const std::uint8_t> greatest) const {
  for (std::size_t i = 0; i < sizeof(std::size_t); ++i) {
    if (greatest[i] + greatest[i + sizeof(std::size_t)] == 0xFF) continue;
    throw CommunicationError(
        "fully_shard: not all ranks called the same units in the same order in this forward, so that they "
        "gathered each other's weights: the losses and gradients of this step are wrong");
  }
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
    for (auto& unit : units_) unit.is_in_backward = false;
  }
  in_backward_ = false;
}

std::optional<std::vector<std::int64_t>> FullySharded::full_sizes(const at::Tensor& parameter) const {
  const auto place = places_.find(parameter.unsafeGetTensorImpl());
  if (place == places_.end()) return std::nullopt;
  const auto& [unit, segment, number] = place->second;
  return units_[unit].segments[segment].full_sizes(number).vec();
}

template <class Use>
at::Tensor FullySharded::with_place(const at::Tensor& parameter, const Use& use) {
  const auto place = places_.find(parameter.unsafeGetTensorImpl());
  if (place == places_.end())
    throw UsageError("fully_shard: the tensor is no parameter of the sharded module");
  const auto& [unit, segment, number] = place->second;
  return use(units_[unit].segments[segment], number);
}

at::Tensor FullySharded::take_part(const at::Tensor& parameter, const at::Tensor& whole) {
  if (whole_ > 0) {
    throw UsageError(
        "fully_shard: a state cannot be loaded inside full_parameters(), where the parameters are whole");
  }
  ++generation_;
  return with_place(
      parameter, [&](const auto& segment, std::size_t number) { return segment.take_part(number, whole); });
}

void FullySharded::show_whole() {
  if (whole_++ > 0) return;
  forget_failed_step();
  for_each_segment([](ShardedSegment& segment) { segment.show_originals(); });
}

void FullySharded::show_shards_again() noexcept {
  if (--whole_ > 0) return;
  ++generation_;
  for_each_segment([](ShardedSegment& segment) {
    segment.take_over_originals();
    segment.show_shards(false);
  });
}

}  // namespace parallel

FullyShardedDataParallelBase::FullyShardedDataParallelBase(const std::vector<NamedTensor>& parameters,
                                                           const std::vector<NamedTensor>& buffers,
                                                           const std::vector<parallel::NamedUnit>& all_units,
                                                           const parallel::ShardGroups& groups,
                                                           const FullyShardOptions& options) {
  const auto units = parallel::units_of_classes(all_units, options.transformer_cls_names_to_wrap);
  const ProcessGroup& group = groups.all;
  const std::string complaint = parallel::complaint_about_sharding(parameters, all_units, group);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
  } else {
    std::string summary = fmt::format("reshard_after_forward {}, {} units{}", options.reshard_after_forward,
                                      units.size(), parallel::in_words(options.mp_policy));
    parallel::check_agreement(group,
                              {parallel::whole_forms(parameters), buffers, std::move(summary), complaint});
    for (const auto& entry : buffers) group.broadcast(entry.tensor);
  }
  for (const auto& [name, unit, class_name] : all_units) {
    const bool is_chosen =
        std::any_of(units.begin(), units.end(), [&](const auto& chosen) { return chosen.unit == unit; });
    if (!is_chosen) parallel::make_whole(*unit);
  }
  state_ = std::make_shared<parallel::FullySharded>(parameters, units, groups, options);
  if (!state_->is_sharded()) return;
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
  at::Tensor squares = at::zeros({1}, at::TensorOptions(at::kDouble).device(state_->groups.all.device()));
  for (const auto& entry : state_->trained) {
    const at::Tensor& gradient = entry.tensor.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient);
    squares.add_(at::linalg_vector_norm(gradient, 2, at::nullopt, false, at::kDouble).square());
  }
  if (state_->groups.shard.size() > 1) state_->groups.shard.all_reduce(squares);
  const at::Tensor norm = squares.sqrt();
  const at::Tensor factor = norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  for (const auto& gradient : gradients) gradient.mul_(factor.to(gradient.scalar_type()));
  return norm.squeeze().to(at::kFloat);
}

std::optional<std::vector<std::int64_t>> FullyShardedDataParallelBase::full_sizes(
    const at::Tensor& parameter) const {
  return state_->full_sizes(parameter);
}

at::Tensor FullyShardedDataParallelBase::gather_full(const at::Tensor& parameter,
                                                     const at::Tensor& part) const {
  if (!state_->is_sharded()) return part;
  return state_->with_place(
      parameter, [&](const auto& segment, std::size_t number) { return segment.gather(number, part); });
}

at::Tensor FullyShardedDataParallelBase::take_part(const at::Tensor& parameter,
                                                   const at::Tensor& whole) const {
  if (!state_->is_sharded()) return whole;
  return state_->take_part(parameter, whole);
}

const std::vector<NamedTensor>& FullyShardedDataParallelBase::parameters() const { return state_->trained; }
const ProcessGroup& FullyShardedDataParallelBase::process_group() const { return state_->groups.all; }
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
