#include "plan/worker_environment.hpp"

#include <cctype>

namespace lockstep::launch {
namespace {

constexpr std::string_view kMacro = "local_rank";

bool continues_name(const std::string& text, std::size_t at) {
  if (at >= text.size()) return false;
  const auto letter = static_cast<unsigned char>(text[at]);
  return std::isalnum(letter) != 0 || letter == '_';
}

/// The length of the macro that begins at `at`, where a '$' stands; 0: none does.
std::size_t macro_length(const std::string& text, std::size_t at) {
  const std::string_view after = std::string_view(text).substr(at + 1);
  if (after.starts_with("{local_rank}")) return kMacro.size() + 3;
  const std::size_t length = kMacro.size() + 1;
  return after.starts_with(kMacro) && !continues_name(text, at + length) ? length : 0;
}

std::string substituted(const std::string& text, int local_rank) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t macro = text[at] == '$' ? macro_length(text, at) : 0;
    const std::size_t kept = text.compare(at, 2, "$$") == 0 ? 2 : 1;
    result += macro > 0 ? std::to_string(local_rank) : text.substr(at, kept);
    at += macro > 0 ? macro : kept;
  }
  return result;
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
  return result;
}

std::vector<std::string> worker_command(const LaunchPlan& plan, int local_rank) {
  std::vector<std::string> words = plan.command;
  for (std::size_t i = plan.first_argument; i < words.size(); ++i)
    words[i] = substituted(words[i], local_rank);
  return words;
}

std::string thread_notice(const LaunchPlan& plan, const Environment& parent) {
  if (!needs_thread_limit(plan, parent)) return "";
  return "OMP_NUM_THREADS is not set: each of the " + std::to_string(plan.local_world_size) +
         " ranks gets OMP_NUM_THREADS=1. Set it to the CPUs of one rank for more speed.";
}

}  // namespace lockstep::launch
