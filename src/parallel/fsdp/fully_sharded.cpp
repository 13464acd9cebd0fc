#include "parallel/fsdp/fully_sharded.hpp"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/hash.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "lockstep/core/error.hpp"
#include "parallel/fsdp/initially_sharded_unit.hpp"
#include "parallel/fsdp/sharded_parameter_registry.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep::parallel {
namespace {

class Hooks final : public UnitHooks {
 public:
  Hooks(std::weak_ptr<FullySharded> state, std::size_t unit) : state_(std::move(state)), unit_(unit) {}
  void pre_forward() override { state()->pre_forward(unit_); }
  std::optional<at::ScalarType> input_dtype() const override { return state()->input_dtype(); }
  std::optional<at::ScalarType> output_dtype() const override { return state()->output_dtype(unit_); }
  void post_forward(const Tensors& outputs) override { state()->post_forward(unit_, outputs); }
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

/// Maps each tensor's implementation to the number of the unit that gathers it.
std::unordered_map<const void*, std::size_t> find_owners(const std::vector<NamedTensor>& parameters,
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
    const auto [entry_of, is_new] = owners.emplace(entry.tensor.unsafeGetTensorImpl(), owner);
    // Tied weights of several units.
    if (!is_new && entry_of->second != owner) entry_of->second = kRoot;
  }
  return owners;
}

}  // namespace

std::shared_ptr<UnitHooks> hooks_of(const std::shared_ptr<FullySharded>& state, std::size_t unit) {
  return std::make_shared<Hooks>(state, unit);
}

void unshard(Unit& unit) {
  const auto hooks = unit.hooks();
  auto* const before = find_initially_sharded(unit);
  if (before == nullptr) return;
  unit.set_hooks(nullptr);
  before->unshard();
}

FullySharded::FullySharded(const std::vector<NamedTensor>& all, const std::vector<NamedUnit>& named,
                           const ShardGroups& shard_groups, const FullyShardOptions& shard_options)
    : groups(shard_groups), options(shard_options), units_(named.size() + 1), agreement_(shard_groups.all) {
  parameters = without_repeats(all);
  if (!is_sharded()) return;
  const auto owners = find_owners(all, named);
  // By unit, dtype, and whether it is trained.
  std::map<std::tuple<std::size_t, at::ScalarType, bool>, std::vector<NamedTensor>> parameter_groups;
  for (const auto& entry : parameters) {
    const auto owner = owners.at(entry.tensor.unsafeGetTensorImpl());
    const auto key = std::make_tuple(owner, entry.tensor.scalar_type(), entry.tensor.requires_grad());
    parameter_groups[key].push_back(entry);
  }
  // A unit that a ShardedInit has sharded is unsharded from here to the end of its parameter_groups; one with
  // tied weights, which belong to the root, from the beginning.
  std::vector<bool> unshards_early(units_.size(), false);
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (const auto* const before = find_initially_sharded(*named[i].unit)) {
      before->visit_parameters([&](const at::Tensor& parameter, auto, auto) {
        unshards_early[i + 1] = unshards_early[i + 1] || owners.at(parameter.unsafeGetTensorImpl()) != i + 1;
      });
    }
  }
  for (std::size_t unit = 1; unit < units_.size(); ++unit)
    if (unshards_early[unit]) unshard(*named[unit - 1].unit);
  for (auto& [key, members] : parameter_groups) {
    if (const auto unit = std::get<0>(key); unit != kRoot) unshard(*named[unit - 1].unit);
    for (const auto& entry : members) {
      if (groups.all.size() > 1) copy_values(groups.all, entry.tensor);
      ShardedParameterRegistry::add(entry.tensor);
    }
    const std::size_t unit = std::get<0>(key);
    for (std::size_t i = 0; i < members.size(); ++i)
      locations_.emplace(members[i].tensor.unsafeGetTensorImpl(),
                         ParameterLocation{unit, units_[unit].parameter_groups.size(), i});
    units_[unit].parameter_groups.emplace_back(std::move(members), groups, options.mp_policy, pool_);
  }
}

const std::vector<NamedTensor>& FullySharded::trained() {
  trained_.clear();
  for (const auto& entry : parameters)
    if (entry.tensor.requires_grad()) trained_.push_back(entry);
  return trained_;
}

void FullySharded::pre_forward(std::size_t unit) {
  if (full_parameters_depth_ > 0) return;
  auto& self = units_[unit];
  if (unit == kRoot && self.running.empty()) {
    check_written_back();
    reset_after_failed_step();
    for_each_group([](ParameterGroup& group) {
      group.check_sharded_storage();
      // An optimizer may have stepped since.
      group.free_unsharded();
    });
    std::erase_if(calls_, [](const ForwardCall& call) {
      const auto had_backward = call.had_backward.lock();
      return had_backward == nullptr || *had_backward;
    });
    last_began_ = clock_;
    forward_order_.begin();
  }
  settle_prefetched(unit);
  for (auto& group : self.parameter_groups) group.start_unshard();
  // Not in a recomputation, which belongs to backward.
  const bool is_in_forward = !in_backward_ && (unit == kRoot || !units_[kRoot].running.empty());
  if (is_in_forward && options.backward_prefetch) prefetch_forward(unit);
  for (auto& group : self.parameter_groups) group.unshard();
  self.running.push_back({clock_++, at::sequence_number::peek()});
}

void FullySharded::prefetch_forward(std::size_t unit) {
  const auto next = forward_order_.next_after(unit);
  if (!next) return;
  auto& groups_of_next = units_[*next].parameter_groups;
  if (std::ranges::all_of(groups_of_next, [](const auto& group) { return group.is_gathered(); })) return;
  prefetched_ = next;
  for (auto& group : groups_of_next) group.start_unshard();
}

void FullySharded::settle_prefetched(std::optional<std::size_t> unit) {
  const auto prefetched = std::exchange(prefetched_, std::nullopt);
  if (!prefetched || prefetched == unit) return;
  for (auto& group : units_[*prefetched].parameter_groups) group.reshard(false);
}

/// Whether this unit's forward made the tensor. A unit may also return another one's output (a layer that is
/// dropped): that belongs to the backward of the other unit.
bool FullySharded::is_own_output(const at::Tensor& output, const ShardedUnit::Begin& begin) const {
  const auto node = output.grad_fn();
  if (node == nullptr) return locations_.contains(output.unsafeGetTensorImpl());
  // Each thread has its own sequence.
  return node->thread_id() != at::RecordFunction::currentThreadId() ||
         node->sequence_nr() >= begin.sequence_number;
}

void FullySharded::post_forward(std::size_t unit, const Tensors& outputs) {
  if (full_parameters_depth_ > 0) return;
  auto& self = units_[unit];
  const auto had_backward = std::make_shared<bool>(false);
  const ShardedUnit::Begin begin = self.running.back();
  const ForwardCall call{.unit = unit,
                         .begin = begin.clock,
                         .end = clock_++,
                         .generation = generation_,
                         .had_backward = had_backward};
  self.running.pop_back();
  bool has_backward = false;
  for (const auto& output : outputs) {
    if (!output.requires_grad() || !is_own_output(output, begin)) continue;
    has_backward = true;
    output.register_hook([state = shared_from_this(), call, had_backward](const at::Tensor&) {
      *had_backward = true;
      state->pre_backward(call);
    });
  }
  if (has_backward) calls_.push_back(call);
  if (unit == kRoot && self.running.empty()) settle_prefetched();
  // In a recomputation, the unit's backward is still running.
  if (!self.running.empty() || self.is_in_backward) return;
  for (auto& group : self.parameter_groups) group.reshard(has_backward && keeps_unsharded(unit));
}

void FullySharded::forward_failed(std::size_t unit) noexcept {
  if (full_parameters_depth_ > 0) return;
  auto& self = units_[unit];
  self.running.pop_back();
  settle_prefetched();
  if (!self.running.empty()) return;
  for (auto& group : self.parameter_groups) group.reshard(false);
}

/// The engine runs the nodes of later forwards first. So when the backward of `call` begins, all nodes of
/// forwards that began after `call` ended have run.
void FullySharded::pre_backward(const ForwardCall& call) {
  if (call.generation != generation_) {
    throw UsageError(
        "fully_shard: weights were loaded or written between a forward and its backward, which would compute "
        "with other ones: call forward again");
  }
  if (at::GradMode::is_enabled()) {
    throw UsageError(
        "fully_shard: create_graph (a penalty on gradients) is not supported: gradients of gradients need "
        "weights that "
        "are freed in the first backward. Use DistributedDataParallel");
  }
  if (!in_backward_) {
    in_backward_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback(
        [state = shared_from_this()] { state->finish_backward(); });
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (unit != call.unit && units_[unit].is_in_backward) post_backward(unit, call);
  }
  auto& self = units_[call.unit];
  self.is_in_backward = true;
  for (auto& group : self.parameter_groups) group.start_unshard();
  for (auto& group : self.parameter_groups) group.unshard();
  if (options.backward_prefetch) prefetch(call);
}

/// Backward proceeds from a unit to the call `next`.
void FullySharded::post_backward(std::size_t unit, const ForwardCall& next) {
  bool has_earlier_one = false;
  for (const auto& call : calls_) {
    if (call.unit != unit || call.begin > next.end) continue;
    // Contains `next`, or is inside it: the output of one may be the output of the other.
    if (call.end > next.begin) return;
    has_earlier_one = true;
  }
  if (!has_earlier_one) return reduce(unit);
  units_[unit].is_in_backward = false;
  for (auto& group : units_[unit].parameter_groups) group.reshard(keeps_unsharded(unit));
}

/// Gathers what backward needs after `call`.
void FullySharded::prefetch(const ForwardCall& call) {
  const auto here = std::find_if(calls_.rbegin(), calls_.rend(),
                                 [&](const ForwardCall& other) { return other.end == call.end; });
  if (here == calls_.rend() || here + 1 == calls_.rend()) return;
  for (auto& group : units_[(here + 1)->unit].parameter_groups) group.start_unshard();
}

void FullySharded::reduce(std::size_t unit) {
  auto& self = units_[unit];
  for (auto& group : self.parameter_groups) group.reshard(false);
  self.is_in_backward = false;
  if (!synchronise) {
    for (auto& group : self.parameter_groups) group.keep_unsharded_gradients();
    return;
  }
  // The gradients of only one unit are reduced at a time, because their buffers are unsharded.
  wait_for_reduce_scatter();
  for (auto& group : self.parameter_groups) {
    if (group.is_trained()) group.start_reduce_scatter();
  }
}

void FullySharded::wait_for_reduce_scatter() {
  for_each_group([](ParameterGroup& group) { group.wait_for_reduce_scatter(); });
}

void FullySharded::finish_backward() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    auto& self = units_[unit];
    const bool has_gradients = std::any_of(self.parameter_groups.begin(), self.parameter_groups.end(),
                                           [](const auto& group) { return group.has_gradients(); });
    if (self.is_in_backward || has_gradients) reduce(unit);
  }
  wait_for_reduce_scatter();
  // Frees what was prefetched for a backward that did not happen.
  for_each_group([](ParameterGroup& group) { group.reshard(false); });

  // Which earlier forwards are known depends on how long a rank keeps their graphs.
  for (const auto& call : calls_)
    if (call.begin >= last_began_) order_ = c10::hash_combine(order_, call.unit);
  order_ = c10::hash_combine(order_, units_.size());
  order_ = c10::hash_combine(order_, forward_order_.hash());
  for (const auto& entry : parameters)
    order_ = c10::hash_combine(order_, static_cast<std::size_t>(entry.tensor.requires_grad()));
  // A parameter without a gradient on any rank gets none, because an optimizer would change it even with
  // zeros.
  std::vector<std::uint8_t> used;
  for_each_group([&](ParameterGroup& group) {
    used.insert(used.end(), group.had_gradient().begin(), group.had_gradient().end());
  });
  if (used.empty()) {
    in_backward_ = false;
    return;
  }
  const std::size_t marks = used.size();
  append_order_hash(std::exchange(order_, 0), used);
  if (agreement_.is_started()) read_agreement();
  forward_order_.compare();
  agreement_.start(at::tensor(at::ArrayRef<std::uint8_t>(used), at::kByte), ReduceOp::max);
  // The result for parameters is known if this rank used all of them: a GPU's order is checked one backward
  // later, because the host would wait for this one.
  const bool uses_all = std::ranges::count(std::span(used).first(marks), 0) == 0;
  if (!groups.all.device().is_cuda() || !uses_all) used = read_agreement();
  in_backward_ = false;
  std::span<const std::uint8_t> rest = std::span(used).first(marks);
  for_each_group([&](ParameterGroup& group) {
    if (!group.was_reduce_scattered()) return;
    const std::size_t count = group.had_gradient().size();
    group.accumulate_sharded_gradients(rest.first(count));
    rest = rest.subspan(count);
  });
}

std::vector<std::uint8_t> FullySharded::read_agreement() {
  const at::Tensor agreed = agreement_.result();
  const auto* const first = agreed.const_data_ptr<std::uint8_t>();
  std::vector<std::uint8_t> bytes(first, first + agreed.numel());
  check_order_hash(std::span(bytes).last(2 * sizeof(std::size_t)));
  return bytes;
}

/// Adds two numbers, the hash of the order of the forwards and its complement. Their maxima over all ranks
/// add up to all ones if the order is the same everywhere.
void FullySharded::append_order_hash(std::size_t order, std::vector<std::uint8_t>& bytes) {
  for (const std::size_t number : {order, ~order})
    for (std::size_t i = 0; i < sizeof number; ++i) bytes.push_back(number >> (8 * i) & 0xFF);
}

void FullySharded::check_order_hash(std::span<const std::uint8_t> greatest) {
  for (std::size_t i = 0; i < sizeof(std::size_t); ++i) {
    if (greatest[i] + greatest[i + sizeof(std::size_t)] == 0xFF) continue;
    forward_order_.forget();
    throw CommunicationError(
        "fully_shard: not all ranks called the same units in the same order in this forward, so that they "
        "gathered each other's weights, or not all train the same parameters: the losses and gradients of "
        "this "
        "step are wrong");
  }
}

/// A forward or a backward that threw leaves parameters unsharded and gradients partly summed.
void FullySharded::reset_after_failed_step() {
  if (in_backward_) {
    for_each_group([](ParameterGroup& group) {
      group.reshard(false);
      group.drop_unsharded_gradients();
      group.wait_for_reduce_scatter();
      if (group.was_reduce_scattered())
        group.accumulate_sharded_gradients(std::vector<std::uint8_t>(group.had_gradient().size(), 0));
    });
    for (auto& unit : units_) unit.is_in_backward = false;
  }
  in_backward_ = false;
}

std::optional<std::vector<std::int64_t>> FullySharded::full_sizes(const at::Tensor& parameter) const {
  const auto found = locations_.find(parameter.unsafeGetTensorImpl());
  if (found == locations_.end()) return std::nullopt;
  const auto& [unit, group, number] = found->second;
  return units_[unit].parameter_groups[group].full_sizes(number).vec();
}

std::int64_t FullySharded::part_begin(const at::Tensor& parameter) const {
  return with_parameter(parameter,
                        [](const auto& group, std::size_t number) { return group.part_begin(number); });
}

at::Tensor FullySharded::take_part(const at::Tensor& parameter, const at::Tensor& whole) {
  if (full_parameters_depth_ > 0) {
    throw UsageError(
        "fully_shard: a state cannot be loaded inside full_parameters(), where the parameters are whole");
  }
  ++generation_;
  return with_parameter(
      parameter, [&](const auto& group, std::size_t number) { return group.take_part(number, whole); });
}

void FullySharded::drop_unsharded_gradients() {
  order_ = 0;
  for_each_group([](ParameterGroup& group) { group.drop_unsharded_gradients(); });
}

/// A destructor cannot throw it.
void FullySharded::check_written_back() {
  if (not_written_back_.empty()) return;
  throw UsageError("fully_shard: full_parameters(): " + std::exchange(not_written_back_, {}) +
                   ", so that it kept its own");
}

void FullySharded::unshard_all() {
  if (full_parameters_depth_ == 0) check_written_back();
  if (full_parameters_depth_++ > 0) return;
  reset_after_failed_step();
  for_each_group([](ParameterGroup& group) { group.unshard_in_original_dtype(); });
}

void FullySharded::reshard_all() noexcept {
  if (--full_parameters_depth_ > 0) return;
  ++generation_;
  for_each_group([this](ParameterGroup& group) {
    try {
      if (auto complaint = group.write_back_originals(); !complaint.empty())
        not_written_back_ = std::move(complaint);
    } catch (const std::exception& error) {
      not_written_back_ = error.what();
    }
    group.reshard(false);
  });
}

}  // namespace lockstep::parallel
