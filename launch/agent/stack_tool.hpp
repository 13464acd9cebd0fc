#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// A debugger that prints the stacks of another process: py-spy for Python, else eu-stack or gdb, whichever
/// is found in PATH first.
class StackTool {
 public:
  /// The words to run for a process; nothing where no tool is installed. *Local*.
  static std::optional<std::vector<std::string>> command_for(pid_t process, const std::string& search_path);

  /// Starts the tool with its output in `file`. Throws SpawnError.
  StackTool(const std::vector<std::string>& command, const Environment& environment, const std::string& file);
  /// Ends it, without waiting: SIGTERM where it was not asked to end, else SIGKILL. Whoever reaps children
  /// takes note of its end.
  ~StackTool();
  StackTool(const StackTool&) = delete;
  StackTool& operator=(const StackTool&) = delete;

  bool has_ended();
  /// SIGTERM: a debugger leaves the process that it has stopped.
  void ask_to_end();

 private:
  pid_t pid_ = 0;
  bool asked_ = false;
};

}  // namespace lockstep::launch
