#pragma once

#include <string>

namespace lockstep {

/// If a signal that indicates a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, so std::terminate too) ends
/// this process, it first writes the reason and the stack to `error_file`, in torchrun's format, and then
/// dies by that signal as usual. Signals that have another handler are not changed. Once per process: later
/// calls only change the file. A stack overflow is reported only in the thread that called this function, and
/// in threads that called use_crash_stack().
void install_crash_handler(const std::string& error_file) noexcept;

/// Allocates a separate stack for the crash handler in the calling thread, so that an overflow of the
/// thread's stack is reported like any other fault. Freed when the thread ends. For the threads that this
/// library starts; the thread that calls run_program() has one. Does nothing if no crash handler is
/// installed. *Local*.
void use_crash_stack() noexcept;

}  // namespace lockstep
