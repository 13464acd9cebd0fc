#pragma once

#include <string>

namespace lockstep {

/// When a signal that means a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, so std::terminate too) ends
/// this process, it first writes what happened and the stack into `error_file`, in torchrun's format; then it
/// dies by that signal as it would have. Signals that somebody else handles are left alone. Once a process:
/// later calls only change the file. A thread that overflows its stack is heard if it is the one that called
/// this, or has called use_crash_stack().
void install_crash_handler(const std::string& error_file) noexcept;

/// Gives the calling thread a stack of its own for the crash handler, so that an overflow of the thread's
/// stack is reported like any other fault. Kept until the thread ends. For the threads that this library
/// starts; the thread that calls run_program() has one. Does nothing where no crash handler is installed.
/// *Local*.
void use_crash_stack() noexcept;

}  // namespace lockstep
