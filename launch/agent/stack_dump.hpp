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
#include "net/deadline.hpp"

namespace lockstep::launch {

/// A rank whose stacks are requested.
struct StackTarget {
  int rank = 0;
  pid_t pid = 0;
  std::string heartbeat_file;
};

/// The command of a debugger that prints the stacks of a process: py-spy for Python, otherwise eu-stack,
/// otherwise gdb, if found in `search_path`; nullopt if none is installed. *Local*.
std::optional<std::vector<std::string>> debugger_for(pid_t process, const std::string& search_path);

/// The stacks of this node's ranks. There is one dump at a time; its answer goes to everyone who has asked
/// meanwhile.
///
/// All ranks are asked at once. A rank of the library writes its stacks itself on a signal, which is sent
/// only to processes that have a handler for it. Other programs are examined with a debugger, or through
/// /proc, which shows where they wait in the kernel. They have 10 s. For the launcher's thread, which is
/// never blocked. *Local*.
class StackDump {
 public:
  using Time = net::Deadline;

  struct Answer {
    std::string text;
    /// Whether this node's log shows it, and which other nodes asked.
    bool here = false;
    std::set<std::int64_t> nodes;
  };

  StackDump();
  /// Ends running debuggers without waiting.
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

  /// `node`: the requester; nullopt: this node. `environment` is for debuggers. It and `targets` are ignored
  /// if a dump is in progress.
  void ask(const std::vector<StackTarget>& targets, const Environment& environment,
           std::optional<std::int64_t> node, Time now);
  /// When to call `work`; Time::max(): never.
  Time deadline() const { return begun_ ? next_look_ : Time::max(); }
  /// The answer, once all ranks have answered or their time is over.
  std::optional<Answer> work(Time now);
  /// The answer so far, because the ranks have ended.
  std::optional<Answer> finish();

 private:
  class Request;

  std::vector<std::unique_ptr<Request>> requests_;
  Answer answer_;
  /// nullopt: no dump is in progress.
  std::optional<Time> begun_;
  Time next_look_;
};

}  // namespace lockstep::launch
