#include "failure/process_failure.hpp"

#include <fmt/core.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::launch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessFailure, rank, local_rank, pid, node, host, time, program, stopped,
                                   killed, message, error, error_file, peak_memory, hung, is_secondary,
                                   log_file, last_lines)

bool ProcessFailure::timed_out() const noexcept {
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == kTimeoutExitCode;
}

bool ProcessFailure::killed_by_oom() const noexcept {
  return status && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL && !killed &&
         oom_kills.value_or(0) > 0;
}

bool ProcessFailure::crashed() const noexcept {
  if (killed_by_oom()) return true;
  if (!status || stopped || !WIFSIGNALED(*status)) return false;
  // A program may abort, or be ended by a pipe that nobody reads, because another rank is gone; and requests
  // to end are no crash.
  const auto consequences = {SIGABRT, SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  return std::count(consequences.begin(), consequences.end(), WTERMSIG(*status)) == 0;
}

nlohmann::json to_json(const ProcessFailure& failure) {
  nlohmann::json json = failure;
  if (failure.status) json["status"] = *failure.status;
  if (failure.oom_kills) json["oom_kills"] = *failure.oom_kills;
  return json;
}

ProcessFailure read_process_failure(const nlohmann::json& json) {
  ProcessFailure failure;
  try {
    // A number that is too large for its field has no defined value there.
    for (const auto& value : json) {
      if (value.is_number_float()) throw DataError("the record of a failed rank has a fraction.");
    }
    json.get_to(failure);
    if (json.contains("status")) failure.status = json["status"].get<int>();
    if (json.contains("oom_kills")) failure.oom_kills = json["oom_kills"].get<std::int64_t>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        fmt::format("the record of a failed rank is of another form: {}. Use the same version of "
                    "lockstep on every node.",
                    error.what()));
  }
  constexpr std::size_t kLongestText = 16 * 1024;
  for (std::string* text : {&failure.node, &failure.host, &failure.program, &failure.message,
                            &failure.error_file, &failure.log_file, &failure.last_lines})
    text->resize(std::min(text->size(), kLongestText));
  return failure;
}

}  // namespace lockstep::launch
