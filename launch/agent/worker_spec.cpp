#include "agent/worker_spec.hpp"

#include <fmt/core.h>

#include "config/devices.hpp"
#include "process/command_words.hpp"

namespace lockstep::launch {
namespace {

void set_virtual_rank(Environment& environment, int local_rank, const Environment& parent) {
  environment["LOCAL_RANK"] = "0";
  environment["CUDA_VISIBLE_DEVICES"] = virtual_device(parent, local_rank);
}

bool needs_thread_limit(const LaunchConfig& config, const Environment& parent) {
  return config.local_world_size > 1 && parent.find("OMP_NUM_THREADS") == parent.end();
}

}  // namespace

std::string error_file(const WorkerSpec& spec, int local_rank) {
  const std::string repeat = spec.repeat == 0 ? "" : fmt::format(".{}", spec.repeat);
  return fmt::format("{}/attempt_{}{}/{}/error.json", spec.folder, spec.place.restart_count, repeat,
                     local_rank);
}

Environment worker_environment(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                               const Environment& parent) {
  const Assignment& place = spec.place;
  Environment result = parent;
  result["RANK"] = std::to_string(place.first_rank + local_rank);
  result["LOCAL_RANK"] = std::to_string(local_rank);
  result["ROLE_RANK"] = std::to_string(place.first_role_rank + local_rank);
  result["GROUP_RANK"] = std::to_string(place.group_rank);
  result["WORLD_SIZE"] = std::to_string(place.world_size);
  result["LOCAL_WORLD_SIZE"] = std::to_string(config.local_world_size);
  result["ROLE_WORLD_SIZE"] = std::to_string(place.role_world_size);
  result["GROUP_WORLD_SIZE"] = std::to_string(place.group_world_size);
  result["ROLE_NAME"] = config.role;
  result["MASTER_ADDR"] = spec.master.host;
  result["MASTER_PORT"] = std::to_string(spec.master.port);
  result["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.restart_count);
  result["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(place.max_restarts);
  result["TORCHELASTIC_RUN_ID"] = config.run_id;
  result["TORCHELASTIC_USE_AGENT_STORE"] = spec.agent_store ? "True" : "False";
  result["TORCHELASTIC_ERROR_FILE"] = error_file(spec, local_rank);
  result["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle;
  result.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (needs_thread_limit(config, parent)) result["OMP_NUM_THREADS"] = "1";
  if (config.virtual_local_rank) set_virtual_rank(result, local_rank, parent);
  return result;
}

std::vector<std::string> worker_command(const LaunchConfig& config, int local_rank) {
  std::vector<std::string> words = config.command;
  for (std::size_t i = config.first_argument; i < words.size(); ++i)
    words[i] = substituted(words[i], {{"local_rank", std::to_string(local_rank)}});
  return words;
}

std::string thread_notice(const LaunchConfig& config, const Environment& parent) {
  if (!needs_thread_limit(config, parent) || config.log_level > LogLevel::warning) return "";
  const std::size_t block = config.bindings.empty() ? 0 : config.bindings.front().cpus.size();
  const std::string head = fmt::format(
      "OMP_NUM_THREADS is not set: each of the {} ranks gets OMP_NUM_THREADS=1", config.local_world_size);
  if (block == 1) return head + ", as each is bound to one CPU.";
  const std::string here = block == 0 ? "" : fmt::format(" ({} for local rank 0)", block);
  return head + ". Set it to the CPUs of one rank" + here + " for more speed.";
}

}  // namespace lockstep::launch
