#include "failure/process_failure.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::launch {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestText = 16 * 1024;

const Json& field(const Json& json, const char* key, bool right_type(const Json&)) {
  const auto found = json.find(key);
  if (found == json.end() || !right_type(*found))
    throw DataError(std::string("the record of a failed rank has no valid '") + key + "'.");
  return *found;
}

std::string text(const Json& json, const char* key) {
  return field(json, key, [](const Json& value) { return value.is_string(); })
      .get<std::string>()
      .substr(0, kLongestText);
}

std::int64_t number(const Json& json, const char* key) {
  return field(json, key, [](const Json& value) { return value.is_number_integer(); }).get<std::int64_t>();
}

bool flag(const Json& json, const char* key) {
  return field(json, key, [](const Json& value) { return value.is_boolean(); }).get<bool>();
}

}  // namespace

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

Json to_json(const ProcessFailure& record) {
  Json json = {{"rank", record.rank},
               {"local_rank", record.local_rank},
               {"pid", record.pid},
               {"node", record.node},
               {"host", record.host},
               {"time", record.time},
               {"program", record.program},
               {"stopped", record.stopped},
               {"killed", record.killed},
               {"message", record.message},
               {"error", record.error},
               {"error_file", record.error_file},
               {"peak_memory", record.peak_memory},
               {"hung", record.hung},
               {"is_secondary", record.is_secondary},
               {"timed_out", record.timed_out()},
               {"log_file", record.log_file},
               {"last_lines", record.last_lines}};
  if (record.status) json["status"] = *record.status;
  if (record.oom_kills) json["oom_kills"] = *record.oom_kills;
  return json;
}

ProcessFailure read_process_failure(const Json& json) {
  ProcessFailure record;
  record.rank = static_cast<int>(number(json, "rank"));
  record.local_rank = static_cast<int>(number(json, "local_rank"));
  record.pid = static_cast<pid_t>(number(json, "pid"));
  record.node = text(json, "node");
  record.host = text(json, "host");
  record.time = number(json, "time");
  record.program = text(json, "program");
  record.stopped = flag(json, "stopped");
  record.killed = flag(json, "killed");
  record.message = text(json, "message");
  record.error = json.value("error", Json());
  record.error_file = text(json, "error_file");
  record.peak_memory = number(json, "peak_memory");
  record.hung = flag(json, "hung");
  record.is_secondary = flag(json, "is_secondary");
  record.log_file = text(json, "log_file");
  record.last_lines = text(json, "last_lines");
  if (json.contains("status")) record.status = static_cast<int>(number(json, "status"));
  if (json.contains("oom_kills")) record.oom_kills = number(json, "oom_kills");
  return record;
}

}  // namespace lockstep::launch
