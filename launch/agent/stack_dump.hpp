#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// A rank whose stacks are wanted.
struct StackTarget {
  int rank = 0;
  pid_t pid = 0;
  std::string heartbeat_file;
};

/// The stacks of all its threads, or why they could not be had; lines of text.
struct RankStacks {
  int rank = 0;
  pid_t pid = 0;
  std::string text;
};

/// Asks all ranks at once for their stacks. A rank of the library writes them itself, on a signal that is
/// sent only where the process has a handler for it; of other programs a debugger tells them (py-spy,
/// eu-stack or gdb, where one is installed), else /proc where they wait in the kernel. They have 10 s;
/// nothing here waits for them: `work` is to be called at `next_look()`. For the launcher's thread. *Local*.
class StackDump {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `environment` is for the debugger.
  StackDump(const std::vector<StackTarget>& targets, const Environment& environment, Time now);
  /// Ends debuggers that still run, without waiting.
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

  Time next_look() const noexcept { return next_look_; }
  /// Whether all have answered, or their time is over.
  bool work(Time now);
  /// What there is by now.
  std::vector<RankStacks> take();

 private:
  class Request;

  std::vector<std::unique_ptr<Request>> requests_;
  Time next_look_;
  Time ask_deadline_;
  /// When debuggers that were told to end must have done so.
  Time grace_end_;
  bool told_to_end_ = false;
};

/// As the launcher prints them.
std::string stacks_report(const std::vector<RankStacks>& stacks);

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
