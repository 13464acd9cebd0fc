#pragma once

#include <string>

namespace lockstep {

/// Loads what a backtrace needs, so that signal handlers can make them from now on.
void prepare_backtraces() noexcept;

/// For a signal handler: writes the stack that the signal has interrupted, a frame a line. `context` is the
/// handler's third argument. Names are as the linker knows them (mangled); functions that are not exported
/// (-rdynamic) have only file and offset. Async-signal-safe after prepare_backtraces.
void write_interrupted_stack(int descriptor, const void* context) noexcept;

/// From now on a signal makes this process write the stacks of all its threads into `path` (made anew each
/// time, complete when its last line is kEndOfStacks) and go on. Returns the number of the signal, a
/// real-time one that nobody handles; 0 where there is none. Once a process: later calls return the same
/// number and keep the path.
int write_stacks_on_signal(const std::string& path) noexcept;

/// How often this process has been asked for its stacks by that signal. Any thread.
unsigned stack_requests() noexcept;

}  // namespace lockstep
