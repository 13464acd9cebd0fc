#include "agent/worker_spec.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <ostream>
#include <utility>

#include "config/devices.hpp"
#include "core/elastic/recovery_messages.hpp"
#include "core/text.hpp"
#include "net/socket.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

bool needs_thread_limit(const LaunchConfig& config, const Environment& parent) {
  return config.local_world_size > 1 && parent.find("OMP_NUM_THREADS") == parent.end();
}

int process_of(const WorkerSpec& spec, int local_rank) {
  const auto process = spec.processes.find(local_rank);
  return process == spec.processes.end() ? 0 : process->second;
}

/// `number`: STDOUT_FILENO or STDERR_FILENO.
net::FileDescriptor open_stream(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                                int number, Sink sink, LogForwarder& forwarder) {
  const std::string name = number == STDOUT_FILENO ? "stdout.log" : "stderr.log";
  const auto folder = rank_folder(spec, local_rank);
  if (sink == Sink::console) return {};
  if (sink == Sink::nothing) return open_log("/dev/null");
  // With --log-max-size the launcher writes the file.
  if (sink == Sink::file && config.log_max_bytes == 0) return open_log(folder / name);
  ForwardedStream stream{.local_rank = local_rank,
                         .process = process_of(spec, local_rank),
                         .number = number,
                         .shown = sink == Sink::forward};
  stream.prefix = line_prefix(config.line_prefix, config.options.role,
                              spec.assignment.first_rank + local_rank, local_rank);
  if (!config.log_dir.empty()) stream.copy.emplace(folder / name, config.log_max_bytes);
  stream.filters = number == STDOUT_FILENO ? config.options.duplicate_stdout_filters
                                           : config.options.duplicate_stderr_filters;
  // All ranks append whole lines to one file.
  if (stream.shown && !stream.filters.empty() && !config.log_dir.empty())
    stream.filtered.emplace(folder.parent_path() / ("filtered_" + name), 0);
  return forwarder.open(std::move(stream));
}

}  // namespace

WorkerSpec for_process(WorkerSpec spec, int local_rank, int process) {
  spec.processes.erase(local_rank);
  if (process > 0) spec.processes[local_rank] = process;
  return spec;
}

std::filesystem::path rank_folder(const WorkerSpec& spec, int local_rank) {
  const std::string repeat = spec.repeat == 0 ? "" : fmt::format(".{}", spec.repeat);
  const int process = process_of(spec, local_rank);
  const std::string again = process == 0 ? "" : fmt::format(".{}", process);
  return fmt::format("{}/attempt_{}{}/{}{}", spec.folder, spec.assignment.restart_count, repeat, local_rank,
                     again);
}

std::string error_file(const WorkerSpec& spec, int local_rank) {
  return rank_folder(spec, local_rank) / "error.json";
}

Environment worker_environment(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                               const Environment& parent) {
  const Assignment& assignment = spec.assignment;
  Environment result = parent;
  const std::pair<const char*, int> numbers[] = {{"RANK", assignment.first_rank + local_rank},
                                                 {"LOCAL_RANK", local_rank},
                                                 {"ROLE_RANK", assignment.first_role_rank + local_rank},
                                                 {"GROUP_RANK", assignment.group_rank},
                                                 {"WORLD_SIZE", assignment.world_size},
                                                 {"LOCAL_WORLD_SIZE", config.local_world_size},
                                                 {"ROLE_WORLD_SIZE", assignment.role_world_size},
                                                 {"GROUP_WORLD_SIZE", assignment.group_world_size},
                                                 {"MASTER_PORT", spec.master.port},
                                                 {"TORCHELASTIC_RESTART_COUNT", assignment.restart_count},
                                                 {"TORCHELASTIC_MAX_RESTARTS", assignment.max_restarts}};
  for (const auto& [name, number] : numbers) result[name] = std::to_string(number);
  result["ROLE_NAME"] = config.options.role;
  result["MASTER_ADDR"] = spec.master.host;
  result["TORCHELASTIC_RUN_ID"] = config.run_id;
  result["TORCHELASTIC_USE_AGENT_STORE"] = spec.assignment.own_store ? "False" : "True";
  result["TORCHELASTIC_ERROR_FILE"] = error_file(spec, local_rank);
  result["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.options.signals_to_handle;
  result.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  result.erase(elastic::kReplacesVariable);
  result.erase(elastic::kRecoveriesVariable);
  if (assignment.max_recoveries > 0)
    result[elastic::kRecoveriesVariable] = std::to_string(assignment.max_recoveries);
  if (needs_thread_limit(config, parent)) result["OMP_NUM_THREADS"] = "1";
  if (config.options.virtual_local_rank) {
    result["LOCAL_RANK"] = "0";
    result["CUDA_VISIBLE_DEVICES"] = virtual_device(parent, local_rank);
  }
  return result;
}

std::vector<std::string> worker_command(const LaunchConfig& config, int local_rank) {
  std::vector<std::string> words = config.command;
  for (std::size_t i = 1; i < words.size(); ++i)
    words[i] = substitute_macros(words[i], {{"local_rank", std::to_string(local_rank)}});
  return words;
}

WorkerOutput open_output(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                         LogForwarder& forwarder) {
  const RankOutput& sinks = config.outputs[static_cast<std::size_t>(local_rank)];
  return {open_stream(config, spec, local_rank, STDOUT_FILENO, sinks.out, forwarder),
          open_stream(config, spec, local_rank, STDERR_FILENO, sinks.err, forwarder)};
}

void add_stderr_tail(ProcessFailure& failure, const LaunchConfig& config, const WorkerSpec& spec,
                     const LogForwarder& forwarder) {
  const Sink sink = config.outputs[static_cast<std::size_t>(failure.local_rank)].err;
  if (sink == Sink::console || sink == Sink::nothing) return;
  if (!config.log_dir.empty()) failure.log_file = rank_folder(spec, failure.local_rank) / "stderr.log";
  const bool direct = sink == Sink::file && config.log_max_bytes == 0;
  failure.last_lines = direct ? last_lines(failure.log_file, config.options.report_lines)
                              : forwarder.last_lines(failure.local_rank, process_of(spec, failure.local_rank),
                                                     config.options.report_lines);
}

void print_config(const LaunchConfig& config, const Environment& environment, std::ostream& out) {
  WorkerSpec spec;
  // As if all nodes had joined, each with as many ranks as this one.
  spec.assignment = {.max_restarts = config.options.max_restarts,
                     .group_rank = config.node_rank.value_or(0),
                     .group_world_size = config.max_nodes,
                     .first_rank = config.node_rank.value_or(0) * config.local_world_size,
                     .world_size = config.max_nodes * config.local_world_size,
                     .max_recoveries = config.options.max_recoveries};
  spec.assignment.first_role_rank = spec.assignment.first_rank;
  spec.assignment.role_world_size = spec.assignment.world_size;
  spec.master = {config.endpoint.host, config.endpoint.port != 0 ? config.endpoint.port : net::free_port()};
  spec.folder = config.log_dir.empty() ? "<a temporary folder>" : config.log_dir;
  for (int rank = 0; rank < config.local_world_size; ++rank) {
    out << "rank " << spec.assignment.first_rank + rank << ":";
    for (const auto& word : worker_command(config, rank)) out << ' ' << quote_for_shell(word);
    out << '\n';
    if (!config.bindings.empty())
      out << "  on " << binding_text(config.bindings[static_cast<std::size_t>(rank)]) << '\n';
    for (const auto& [name, value] : worker_environment(config, spec, rank, environment)) {
      if (find_variable(environment, name) != value) out << "  " << name << '=' << value << '\n';
    }
  }
}

std::string thread_notice(const LaunchConfig& config, const Environment& parent) {
  if (!needs_thread_limit(config, parent) || config.quiet) return "";
  const std::size_t block = config.bindings.empty() ? 0 : config.bindings.front().cpus.size();
  const std::string head = fmt::format(
      "OMP_NUM_THREADS is not set: each of the {} ranks gets OMP_NUM_THREADS=1", config.local_world_size);
  if (block == 1) return head + ", as each is bound to one CPU.";
  const std::string here = block == 0 ? "" : fmt::format(" ({} for local rank 0)", block);
  return head + ". Set it to the CPUs of one rank" + here + " for more speed.";
}

}  // namespace lockstep::launch
