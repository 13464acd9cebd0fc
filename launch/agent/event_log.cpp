#include "agent/event_log.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <ostream>

#include "failure/error_file.hpp"
#include "process/signal_fd.hpp"

namespace lockstep::launch {
namespace {

using Ordered = nlohmann::ordered_json;

/// Python's way to write how a process ended: minus the number of a signal.
int python_code(int wait_status) {
  return WIFSIGNALED(wait_status) ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// The members that all events have.
Ordered event(const LaunchConfig& config, const Assignment& place, const std::string& host,
              const std::string& source, const std::string& state) {
  Ordered metadata = {
      {"run_id", config.run_id}, {"global_rank", nullptr}, {"group_rank", place.group_rank},
      {"worker_id", nullptr},    {"role", config.role},    {"hostname", host},
      {"state", state},          {"total_run_time", 0},    {"rdzv_backend", config.backend_name},
      {"raw_error", nullptr},    {"metadata", nullptr},    {"agent_restarts", place.restart_count},
      {"duration_ms", nullptr}};
  return {{"name", "torchelastic.worker.status." + state},
          {"source", source},
          {"timestamp", 0},
          {"metadata", std::move(metadata)}};
}

/// A text of JSON within the JSON.
std::string text_of(const Ordered& json) {
  return json.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

std::string error_text(const std::string& path, int wait_status) {
  const auto content = error_content(path);
  if (!content.is_null()) return text_of(Ordered(content));
  Ordered nothing = {{"message", "<NONE>"}};
  if (!WIFSIGNALED(wait_status)) {
    nothing["errorTraits"] = {{"category", "system_terminated_error"}, {"retryability", "False"}};
  }
  return text_of(nothing);
}

}  // namespace

EventLog::EventLog(const LaunchConfig& config, std::ostream& out) : config_(config), out_(out) {}

Ordered EventLog::agent_event(const std::string& state) const {
  Ordered result = event(config_, place_, host_, "AGENT", state);
  result["metadata"]["metadata"] = text_of(
      {{"group_world_size", place_.group_world_size}, {"entry_point", base_name(config_.command.front())}});
  return result;
}

Ordered EventLog::timed_event(const std::string& state, Clock::duration time) const {
  Ordered result = agent_event(state);
  result["metadata"]["duration_ms"] = std::chrono::duration<double, std::milli>(time).count();
  return result;
}

Ordered EventLog::worker_event(const std::string& state, int local_rank, std::int64_t pid) const {
  Ordered result = event(config_, place_, host_, "WORKER", state);
  Ordered& metadata = result["metadata"];
  metadata["global_rank"] = place_.first_rank + local_rank;
  metadata["worker_id"] = std::to_string(pid);
  metadata["metadata"] = text_of({{"group_world_size", place_.group_world_size},
                                  {"entry_point", base_name(config_.command.front())},
                                  {"local_rank", Ordered::array({local_rank})},
                                  {"role_rank", Ordered::array({place_.first_role_rank + local_rank})},
                                  {"role_world_size", Ordered::array({place_.role_world_size})},
                                  {"exit_code", Ordered::array({nullptr})},
                                  {"worker_pid", Ordered::array({nullptr})}});
  return result;
}

std::int64_t EventLog::run_time() const {
  return std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin_).count();
}

void EventLog::started(const WorkerSpec& spec, const std::vector<Worker>& workers) {
  if (!config_.events) return;
  place_ = spec.place;
  host_ = spec.host;
  say(timed_event("RENDEZVOUS", met_ - waiting_since_));
  say(timed_event("ASSIGN_WORKER_RANKS", Clock::now() - met_));
  for (const auto& worker : workers) say(worker_event("START", worker.local_rank, worker.pid));
}

void EventLog::ended(const WorkerSpec& spec, const std::vector<Worker>& workers) {
  if (!config_.events) return;
  ends_.clear();
  for (const auto& worker : workers) {
    const int status = worker.status.value_or(SIGKILL);
    ends_.push_back({worker.local_rank, worker.pid, status,
                     status == 0 ? "" : error_text(error_file(spec, worker.local_rank), status)});
  }
}

void EventLog::say_end(const WorkerEnd& worker, bool all_succeeded) {
  if (worker.status == 0) {
    Ordered told = worker_event(all_succeeded ? "SUCCEEDED" : "TERMINATED", worker.local_rank, worker.pid);
    told["metadata"]["total_run_time"] = run_time();
    return say(std::move(told));
  }
  Ordered told = worker_event("FAILED", worker.local_rank, worker.pid);
  Ordered& metadata = told["metadata"];
  metadata["total_run_time"] = run_time();
  metadata["raw_error"] = worker.error;
  Ordered details = Ordered::parse(metadata["metadata"].get<std::string>());
  details["exit_code"][0] = python_code(worker.status);
  details["worker_pid"][0] = worker.pid;
  metadata["metadata"] = text_of(details);
  say(std::move(told));
}

void EventLog::finished(int signal_number) {
  if (!config_.events) return;
  const bool succeeded =
      std::all_of(ends_.begin(), ends_.end(), [](const WorkerEnd& worker) { return worker.status == 0; });
  if (signal_number == 0) {
    for (const auto& worker : ends_) say_end(worker, succeeded);
  }
  Ordered told = agent_event(signal_number == 0 ? "SUCCEEDED" : "FAILED");
  told["metadata"]["total_run_time"] = run_time();
  if (signal_number != 0) told["metadata"]["raw_error"] = signal_name(signal_number) + " came";
  say(std::move(told));
}

void EventLog::say(Ordered event) { out_ << text_of(event) + "\n" << std::flush; }

}  // namespace lockstep::launch
