#include "lockstep/parallel/sharded_init.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "parallel/fsdp/initially_sharded_unit.hpp"
#include "parallel/fsdp/sharded_parameter_registry.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep {
namespace parallel {
namespace {

/// The groups of the innermost ShardedInit of this thread.
thread_local const ShardGroups* active = nullptr;

/// The place of a parameter that a ShardedInit has sharded.
struct InitialLocation {
  std::weak_ptr<InitiallyShardedUnit> unit;
  std::size_t group, number;
};

struct ParameterLocations {
  std::mutex mutex;
  std::unordered_map<const void*, InitialLocation> known;
};

ParameterLocations& known_locations() {
  static ParameterLocations all;
  return all;
}

/// Empty if the parameter is not sharded by a ShardedInit, or no longer.
std::optional<std::pair<std::shared_ptr<InitiallyShardedUnit>, InitialLocation>> find_location(
    const at::Tensor& parameter) {
  if (!ShardedParameterRegistry::contain(parameter)) return std::nullopt;
  auto& [mutex, known] = known_locations();
  const std::lock_guard lock(mutex);
  const auto found = known.find(parameter.unsafeGetTensorImpl());
  if (found == known.end()) return std::nullopt;
  auto unit = found->second.unit.lock();
  if (unit == nullptr) return std::nullopt;
  return std::pair(std::move(unit), found->second);
}

}  // namespace

void divide_unit(Unit& unit, const std::vector<NamedTensor>& parameters,
                 const std::vector<NamedTensor>& buffers) {
  if (active == nullptr || active->all.size() == 1) return;
  auto own = without_repeats(parameters);
  // Without the parameters of units inside it.
  std::erase_if(own,
                [](const NamedTensor& entry) { return ShardedParameterRegistry::contain(entry.tensor); });
  check_agreement(active->all, {own, buffers, "a unit that was made", ""});
  const auto result = std::make_shared<InitiallyShardedUnit>(own, *active);
  unit.set_hooks(result);
  auto& [mutex, known] = known_locations();
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.unit.expired(); });
  result->visit_parameters([&](const at::Tensor& parameter, std::size_t group, std::size_t number) {
    known.insert_or_assign(parameter.unsafeGetTensorImpl(), InitialLocation{result, group, number});
  });
}

std::vector<std::int64_t> initial_sizes(const at::Tensor& parameter) {
  const auto found = find_location(parameter);
  return found ? found->first->full_sizes(found->second.group, found->second.number)
               : parameter.sizes().vec();
}

void set_initial_values(const at::Tensor& parameter, const std::function<void(const at::Tensor&)>& give) {
  const at::NoGradGuard no_grad;
  const auto found = find_location(parameter);
  if (!found) return give(parameter.detach());
  const auto& [unit, location] = *found;
  const at::Tensor whole = at::empty(unit->full_sizes(location.group, location.number), parameter.options());
  give(whole);
  unit->broadcast(whole);
  parameter.detach().copy_(unit->take_part(location.group, location.number, whole));
}

}  // namespace parallel

ShardedInit::ShardedInit(const parallel::ShardGroups& groups)
    : groups_(groups), before_(std::exchange(parallel::active, &groups_)) {}

ShardedInit::~ShardedInit() { parallel::active = before_; }

}  // namespace lockstep
