#include "agent/event_log.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "core/host_name.hpp"
#include "core/json_text.hpp"
#include "failure/error_file.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using OrderedJson = nlohmann::ordered_json;

double duration_ms(net::Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string to_text(const OrderedJson& json) { return json_text(json); }

std::string error_text(const std::string& path, int wait_status) {
  const auto content = error_content(path);
  if (!content.is_null()) return to_text(OrderedJson(content));
  OrderedJson nothing = {{"message", "<NONE>"}};
  if (!WIFSIGNALED(wait_status))
    nothing["errorTraits"] = {{"category", "system_terminated_error"}, {"retryability", "False"}};
  return to_text(nothing);
}

}  // namespace

void EventLog::write(const std::string& state, const Worker* rank, const OrderedJson& details) const {
  if (config_.options.event_log_handler != "console") return;
  const Assignment& assignment = spec_.assignment;
  OrderedJson more = {{"group_world_size", assignment.group_world_size},
                      {"entry_point", std::filesystem::path(config_.command.front()).filename().string()}};
  OrderedJson error = details.value("error", OrderedJson());
  if (rank != nullptr) {
    const int status = rank->status.value_or(0);
    // Python's exit code: the negative signal number.
    const int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    more["local_rank"] = OrderedJson::array({rank->local_rank});
    more["role_rank"] = OrderedJson::array({assignment.first_role_rank + rank->local_rank});
    more["role_world_size"] = OrderedJson::array({assignment.role_world_size});
    more["exit_code"] = OrderedJson::array({status != 0 ? OrderedJson(code) : OrderedJson()});
    more["worker_pid"] = OrderedJson::array({status != 0 ? OrderedJson(rank->pid) : OrderedJson()});
    const WorkerSpec spec = for_process(spec_, rank->local_rank, rank->process);
    if (status != 0) error = error_text(error_file(spec, rank->local_rank), status);
  }
  // In torchrun's format, some values are JSON in a string.
  const OrderedJson event = {
      {"name", "torchelastic.worker.status." + state},
      {"source", rank == nullptr ? "AGENT" : "WORKER"},
      {"timestamp", 0},
      {"metadata",
       {{"run_id", config_.run_id},
        {"global_rank",
         rank == nullptr ? OrderedJson() : OrderedJson(assignment.first_rank + rank->local_rank)},
        {"group_rank", assignment.group_rank},
        {"worker_id", rank == nullptr ? OrderedJson() : OrderedJson(fmt::to_string(rank->pid))},
        {"role", config_.options.role},
        {"hostname", host_name()},
        {"state", state},
        {"total_run_time", details.value("run_time", 0)},
        {"rdzv_backend", config_.backend_name},
        {"raw_error", error},
        {"metadata", to_text(more)},
        {"agent_restarts", assignment.restart_count},
        {"duration_ms", details.value("duration", OrderedJson())}}}};
  console_.print(to_text(event) + "\n");
}

void EventLog::started(const WorkerSpec& spec, const std::vector<Worker>& workers) {
  spec_ = spec;
  write("RENDEZVOUS", nullptr, {{"duration", duration_ms(rendezvous_end_ - waiting_since_)}});
  write("ASSIGN_WORKER_RANKS", nullptr, {{"duration", duration_ms(net::Clock::now() - rendezvous_end_)}});
  for (Worker worker : workers) {
    worker.status.reset();  // It may have ended already.
    write("START", &worker, OrderedJson::object());
  }
}

void EventLog::ended(const std::vector<Worker>& workers) {
  ends_ = workers;
  waiting_since_ = net::Clock::now();
  for (auto& worker : ends_) worker.status = worker.status.value_or(SIGKILL);
}

void EventLog::finished(int signal_number) {
  const auto run_time = std::chrono::duration_cast<std::chrono::seconds>(net::Clock::now() - begin_).count();
  if (signal_number != 0)
    return write("FAILED", nullptr,
                 {{"run_time", run_time}, {"error", "received " + signal_name(signal_number)}});
  const auto succeeded = [](const Worker& rank) { return rank.status == 0; };
  const bool all_succeeded = std::ranges::all_of(ends_, succeeded);
  for (const auto& rank : ends_) {
    const char* state = !succeeded(rank) ? "FAILED" : all_succeeded ? "SUCCEEDED" : "TERMINATED";
    write(state, &rank, {{"run_time", run_time}});
  }
  write("SUCCEEDED", nullptr, {{"run_time", run_time}});
}

}  // namespace lockstep::launch
