#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "process/worker_group.hpp"

namespace lockstep::launch {

/// The exit status of the launcher for a rank that ended so: its code, or 128 + the number of its signal.
int exit_code_of(int wait_status) noexcept;

/// "exited with code 7", "was killed by SIGSEGV (Segmentation fault)".
std::string describe_exit(int wait_status);

/// The message of an error file in torchrun's form, `{"message": "text"}` or `{"message": {"message":
/// "text"}}`; an empty text when there is no file or it is not of that form. Never throws: a broken file
/// hides no failure. *Local*.
std::string error_message(const std::string& path);

/// The rank to name as the cause where rank `first` ended first. A rank that says in its error file that it
/// fails because of another (lost connection, remote failure, timeout) is not the cause where another one has
/// an error of its own: the two may well end in the wrong order.
std::size_t root_cause(const std::vector<Worker>& workers, std::size_t first,
                       const std::vector<std::string>& messages);

/// What is known of the cause beside its end and its message.
struct CauseDetails {
  /// Processes that the kernel killed for want of memory while the ranks ran.
  std::int64_t out_of_memory_kills = 0;
  /// The file that has its standard error, and what it ended with; empty: it was not kept, or nothing was
  /// written.
  std::string log_file = {};
  std::string last_lines = {};
};

/// What a person needs after a failure: the rank that failed first, how, with its own words where it left
/// some; then the other ranks, a line each. `messages` are the ranks' error messages, in the order of
/// `workers`.
std::string failure_report(const std::vector<Worker>& workers, std::size_t first, const std::string& program,
                           const std::vector<std::string>& messages, const CauseDetails& details = {});

}  // namespace lockstep::launch
