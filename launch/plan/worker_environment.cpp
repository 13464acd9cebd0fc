#include "plan/worker_environment.hpp"

#include "plan/devices.hpp"
#include "plan/substitution.hpp"

namespace lockstep::launch {
namespace {

void set_virtual_rank(Environment& environment, int local_rank, const Environment& parent) {
  environment["LOCAL_RANK"] = "0";
  environment["CUDA_VISIBLE_DEVICES"] = virtual_device(parent, local_rank);
}

bool needs_thread_limit(const LaunchPlan& plan, const Environment& parent) {
  return plan.local_world_size > 1 && parent.find("OMP_NUM_THREADS") == parent.end();
}

}  // namespace

std::string error_file(const Attempt& attempt, int local_rank) {
  return attempt.folder + "/attempt_" + std::to_string(attempt.restart_count) + "/" +
         std::to_string(local_rank) + "/error.json";
}

Environment worker_environment(const LaunchPlan& plan, const Attempt& attempt, int local_rank,
                               const Environment& parent) {
  // One node and one role: every way to count ranks gives the same numbers.
  const std::string rank = std::to_string(local_rank);
  const std::string size = std::to_string(plan.local_world_size);
  Environment result = parent;
  for (const auto* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) result[name] = rank;
  for (const auto* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) result[name] = size;
  result["GROUP_RANK"] = "0";
  result["GROUP_WORLD_SIZE"] = "1";
  result["ROLE_NAME"] = plan.role;
  result["MASTER_ADDR"] = plan.master_addr;
  result["MASTER_PORT"] = std::to_string(attempt.master_port);
  result["TORCHELASTIC_RESTART_COUNT"] = std::to_string(attempt.restart_count);
  result["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(plan.max_restarts);
  result["TORCHELASTIC_RUN_ID"] = plan.run_id;
  result["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  result["TORCHELASTIC_ERROR_FILE"] = error_file(attempt, local_rank);
  result["TORCHELASTIC_SIGNALS_TO_HANDLE"] = plan.signals_to_handle;
  result.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (needs_thread_limit(plan, parent)) result["OMP_NUM_THREADS"] = "1";
  if (plan.virtual_local_rank) set_virtual_rank(result, local_rank, parent);
  return result;
}

std::vector<std::string> worker_command(const LaunchPlan& plan, int local_rank) {
  std::vector<std::string> words = plan.command;
  for (std::size_t i = plan.first_argument; i < words.size(); ++i)
    words[i] = substituted(words[i], {{"local_rank", std::to_string(local_rank)}});
  return words;
}

std::string thread_notice(const LaunchPlan& plan, const Environment& parent) {
  if (!needs_thread_limit(plan, parent) || plan.log_level > LogLevel::warning) return "";
  return "OMP_NUM_THREADS is not set: each of the " + std::to_string(plan.local_world_size) +
         " ranks gets OMP_NUM_THREADS=1. Set it to the CPUs of one rank for more speed.";
}

}  // namespace lockstep::launch
