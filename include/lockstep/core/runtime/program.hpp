#pragma once

#include <functional>
#include <string>

namespace lockstep {

/// What a program returns that was asked to stop before its end, has saved where it is, and would go on from
/// there if it were started again. Unlike 75 and the numbers above 125 it means nothing else to a shell.
constexpr int kPreemptedExitCode = 85;

/// What a program returns that a TimeoutError has ended: it waited for other ranks in vain. A launcher of
/// ours that sees it shows where the ranks are that still run before it stops them.
constexpr int kTimeoutExitCode = 86;

/// The body of a `main`: runs `body` and turns what it throws into one clear line on standard error and an
/// exit code.
///
///     int main(int argc, char** argv) {
///       return lockstep::run_program("my_trainer", [&] { return train(argc, argv); });
///     }
///
/// Returns what `body` returns; 2 after a UsageError, kTimeoutExitCode after a TimeoutError, 1 after any
/// other exception. Line ends in the exception's text become blanks. Under a launcher the line names the
/// rank, and the exception is also written to the file that TORCHELASTIC_ERROR_FILE names, in torchrun's
/// format, so that the launcher's summary can show it; `extraInfo.is_secondary` is true there after a
/// CommunicationError of any kind, which tells the launcher to look for the cause elsewhere. A UsageError,
/// which all ranks of a job have in common, only rank 0 prints where the others have such a file. After a
/// CommunicationError of any kind a rank stays for one second, so that the launcher sees the rank end first
/// that was the cause; not when a StopSignals object has caught a signal. Never throws and never exits.
/// *Local*.
int run_program(const std::string& name, const std::function<int()>& body) noexcept;

}  // namespace lockstep
