#pragma once

#include <string>
#include <vector>

#include "failure/process_failure.hpp"

namespace lockstep::launch {

/// The exit status of the launcher for a rank that ended so: its code, or 128 + the number of its signal.
int exit_code_of(int wait_status) noexcept;

/// "exited with code 7", "was killed by SIGSEGV (Segmentation fault)".
std::string describe_exit(int wait_status);

/// The record of the cause, of the `records` of a round whose first is of the rank that failed first. A rank
/// that blames another one is not the cause where some rank has an error of its own: the two may well end, or
/// be heard of, in the wrong order. `records` is not empty.
std::size_t root_cause(const std::vector<ProcessFailure>& records);

/// What a person needs after a failure: the cause, how it ended, with its own words where it left some, when
/// and where, and the last lines of its standard error; then the other ranks, a line each, and the same of
/// those that failed as well (of the first few: many ranks of a job fail alike).
std::string failure_report(const std::vector<ProcessFailure>& records, std::size_t cause);

}  // namespace lockstep::launch
