#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

/// An object that holds on to a group's connections: operations, or copies of the c10d object. When the group
/// is formed again, it lets go of the old ones and takes the new ones.
///
/// Observers are called in the order in which they were registered, which is the order in which the program
/// made them and so the same on all ranks. One that calls new_namespace() in its constructor does so in
/// reseat() too: a process that replaces another one then gets the same keys as the ranks that stay.
class GroupObserver {
 public:
  GroupObserver() = default;
  virtual ~GroupObserver() = default;
  GroupObserver(const GroupObserver&) = delete;
  GroupObserver& operator=(const GroupObserver&) = delete;

  /// All operations have ended or fail at once. Lets go of them. May be called again without reseat()
  /// between, if forming the group fails. Throws UsageError if this thread is in the middle of something that
  /// needs them.
  virtual void release() = 0;
  /// The group has its new connections. *Collective* if it communicates.
  virtual void reseat() = 0;
  /// Ranks may be lost from now on, and replaced: what a rank alone knows reaches the others with the step
  /// that changes it.
  virtual void expect_losses() {}
  /// True for one whose registration is that notice to the others.
  virtual bool announces_losses() const noexcept { return false; }
};

/// Registers an observer of `group` and of the groups around it. It is called as long as it exists. *Local*.
void observe(const ProcessGroup& group, const std::shared_ptr<GroupObserver>& observer);

/// The group of a process that replaces a lost one, for its set-up: it has its rank and size, but meets the
/// others only when all form the group as that generation, by ProcessGroup::reform(generation). Until then
/// each operation is refused with a UsageError, and what it prepares sends and compares nothing; its
/// observers do, when the group is formed, as those of the other ranks. It is a newcomer until take_part().
/// `generation` is above 1. *Local*.
ProcessGroup join_generation(int rank, int size, const Store& store, std::uint64_t generation,
                             const ProcessGroupOptions& options = {});
bool is_newcomer(const ProcessGroup& group) noexcept;
/// The newcomer has the state of the others. *Local*.
void take_part(const ProcessGroup& group) noexcept;

}  // namespace lockstep::comm
