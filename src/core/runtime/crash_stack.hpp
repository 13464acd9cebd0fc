#pragma once

namespace lockstep {

/// Gives the calling thread a stack of its own for the crash handler, so that an overflow of the thread's
/// stack is reported like any other fault. Kept until the thread ends. For the threads that this library
/// starts; the thread that calls run_program() has one. Does nothing where no crash handler is installed.
/// *Local*.
void use_crash_stack() noexcept;

/// Called by the crash handler before it installs itself.
void enable_crash_stacks() noexcept;

}  // namespace lockstep
