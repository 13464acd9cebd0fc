#pragma once

#include <sys/types.h>

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

/// Asks all ranks at once. A rank of the library writes its stacks itself, on a signal that is sent only
/// where the process has a handler for it; of other programs a debugger tells them (py-spy, eu-stack or gdb,
/// where one is installed), else /proc where they wait in the kernel. Takes up to 10 s. `environment` is for
/// the debugger. *Local*.
std::vector<RankStacks> dump_stacks(const std::vector<StackTarget>& targets, const Environment& environment);

/// As the launcher prints them.
std::string stacks_report(const std::vector<RankStacks>& stacks);

}  // namespace lockstep::launch
