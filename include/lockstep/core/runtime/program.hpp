#pragma once

#include <functional>
#include <string>

namespace lockstep {

/// Exit code of a program that was asked to stop early, has saved its state, and can resume from there.
/// Unlike 75 and the numbers above 125, it has no other meaning to a shell.
constexpr int kPreemptedExitCode = 85;

/// Exit code of a program that a TimeoutError ended: it waited for other ranks in vain. When Lockstep's
/// launcher sees it, it prints the stacks of the ranks that still run before it stops them.
constexpr int kTimeoutExitCode = 86;

/// The body of a `main`: runs `body` and turns an exception into one line on standard error and an exit code.
///
///     int main(int argc, char** argv) {
///       return lockstep::run_program("my_trainer", [&] { return train(argc, argv); });
///     }
///
/// Returns the value of `body`; 2 after a UsageError, kTimeoutExitCode after a TimeoutError, 1 after any
/// other exception. Line breaks in the exception's text become blanks. In a job the line names the rank. The
/// exception is also written to the file that TORCHELASTIC_ERROR_FILE names, in torchrun's format, for the
/// launcher's summary; `extraInfo.is_secondary` is true after a CommunicationError of any kind, which tells
/// the launcher to look for the cause elsewhere. A UsageError or DataError, which all ranks usually have in
/// common, is printed by rank 0 only, if the other ranks have such a file. After a CommunicationError of any
/// kind a rank waits for one second before it exits, so that the launcher sees the failed rank exit first;
/// not if a StopSignals object has caught a signal. Never throws and never exits. *Local*.
int run_program(const std::string& name, const std::function<int()>& body) noexcept;

}  // namespace lockstep
