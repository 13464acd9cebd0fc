#include "comm/group_observer.hpp"

#include "comm/process_group_impl.hpp"

namespace lockstep::comm {

void observe(const ProcessGroup& group, const std::shared_ptr<GroupObserver>& observer) {
  auto& family = *group.impl_->family;
  const std::lock_guard lock(family.mutex);
  std::erase_if(family.observers, [](const auto& one) { return one.expired(); });
  family.observers.push_back(observer);
  if (!observer->announces_losses()) return;
  for (const auto& one : family.observers) {
    if (const auto other = one.lock()) other->expect_losses();
  }
}

ProcessGroup join_generation(int rank, int size, const Store& store, std::uint64_t generation,
                             const ProcessGroupOptions& options) {
  return ProcessGroup::join(rank, size, store, options, generation);
}

bool is_newcomer(const ProcessGroup& group) noexcept { return group.impl_->family->is_newcomer; }

void take_part(const ProcessGroup& group) noexcept { group.impl_->family->is_newcomer = false; }

}  // namespace lockstep::comm
