#pragma once

#include <string>
#include <vector>

#include "failure/process_failure.hpp"

namespace lockstep::launch {

/// The exit status of the launcher for a rank that ended so: its code, or 128 + the number of its signal.
int exit_code_of(int wait_status) noexcept;

/// "exited with code 7", "was killed by SIGSEGV (Segmentation fault)".
std::string describe_exit(int wait_status);

/// What a person needs after a failure: the cause, how it ended, with its own words where it left some, when
/// and where, and the last lines of its standard error; then the same of the first few ranks that failed as
/// well, and a line for all the others of a kind, as for those that only did as they were told. Where there
/// is more than one rank the cause is repeated in the last line, which is the one that a person sees first.
std::string failure_report(const std::vector<ProcessFailure>& failures, std::size_t cause);

/// "lockstep run: FAILED: rank 2 (local rank 2, pid 102, prog) exited with code 1: ValueError: x".
std::string failure_headline(const ProcessFailure& cause);

}  // namespace lockstep::launch
