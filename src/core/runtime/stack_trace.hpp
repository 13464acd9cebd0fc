#pragma once

#include <string>

namespace lockstep {

/// Loads what backtraces need, so that signal handlers can create them from now on.
void prepare_backtraces() noexcept;

/// For a signal handler: writes the stack that the signal interrupted, one line per frame. `context` is the
/// handler's third argument. Names are mangled; functions that are not exported (-rdynamic) have only file
/// and offset. Async-signal-safe after prepare_backtraces.
void write_interrupted_stack(int descriptor, const void* context) noexcept;

/// Installs a signal handler that writes the stacks of all threads to `path`; the process then continues. The
/// file is rewritten each time, and complete if its last line is kEndOfStacks. Returns the number of the
/// signal, a real-time one without another handler; 0 if there is none. Once per process: later calls return
/// the same number and keep the path.
int write_stacks_on_signal(const std::string& path) noexcept;

/// How often that signal has requested stacks. Any thread.
unsigned stack_requests() noexcept;

}  // namespace lockstep
