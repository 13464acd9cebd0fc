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

/// The debugger that prints the stacks of a process, as words to run: py-spy for Python, else eu-stack or
/// gdb, whichever is found in `search_path` first; nothing where none is installed. *Local*.
std::optional<std::vector<std::string>> debugger_for(pid_t process, const std::string& search_path);

/// The stacks of this node's ranks: one dump at a time, whose answer goes to all who have asked meanwhile.
///
/// All ranks are asked at once. A rank of the library writes its stacks itself, on a signal that is sent only
/// where the process has a handler for it; of other programs a debugger tells them, else /proc where they
/// wait in the kernel. They have 10 s. For the launcher's thread, which is never blocked. *Local*.
class StackDump {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Answer {
    /// What the launcher prints.
    std::string text;
    /// Whether this node's own log wants it, and which other nodes do.
    bool here = false;
    std::set<std::int64_t> nodes;
  };

  StackDump();
  /// Ends debuggers that still run, without waiting.
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

  /// `node`: who asks; nothing: this node. `environment` is for debuggers; it and `targets` are not used
  /// while a dump is under way.
  void ask(const std::vector<StackTarget>& targets, const Environment& environment,
           std::optional<std::int64_t> node, Time now);
  /// When `work` is to be called; Time::max(): never.
  Time deadline() const { return begun_ ? next_look_ : Time::max(); }
  /// The answer, once all ranks have answered or their time is over.
  std::optional<Answer> work(Time now);
  /// The answer as far as it goes: the ranks have ended.
  std::optional<Answer> finish();

 private:
  class Request;

  std::vector<std::unique_ptr<Request>> requests_;
  Answer answer_;
  /// Nothing: no dump is under way.
  std::optional<Time> begun_;
  Time next_look_;
};

}  // namespace lockstep::launch
