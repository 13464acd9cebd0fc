#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/stack_dump.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// The stacks of this node's ranks, and who wants them: one dump at a time, whose answer goes to all who have
/// asked meanwhile. For the launcher's thread, which it never holds.
class StackRequests {
 public:
  using Time = StackDump::Time;

  struct Answer {
    /// What the launcher prints.
    std::string text;
    /// Whether this node's own log wants it, and which other nodes do.
    bool here = false;
    std::set<std::int64_t> nodes;
  };

  /// `node`: who wants them; nothing: this node. `targets` and `environment` are of no matter while a dump is
  /// under way.
  void ask(const std::vector<StackTarget>& targets, const Environment& environment,
           std::optional<std::int64_t> node, Time now);
  bool under_way() const noexcept { return dump_.has_value(); }
  /// When `work` is to be called; Time::max(): never.
  Time deadline() const;
  /// The answer, when it is there.
  std::optional<Answer> work(Time now);
  /// The answer as far as it goes: the ranks have ended.
  std::optional<Answer> finish();

 private:
  std::optional<StackDump> dump_;
  Answer answer_;
};

}  // namespace lockstep::launch
