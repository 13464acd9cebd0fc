#include "core/cluster/slurm_step.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "core/cluster/hostlist.hpp"
#include "core/cluster/scheduler_info.hpp"
#include "core/cluster/scheduler_variables.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using namespace variables;

constexpr std::uint64_t kFirstPort = 15'000;
constexpr std::uint64_t kPorts = 16'384;

std::vector<int> ranks_here(const Environment& environment) {
  std::vector<int> result;
  const std::string text = find_variable(environment, "SLURM_GTIDS").value_or("");
  if (text.empty()) return result;
  for (const std::string_view part : split_at_commas(text)) {
    const auto rank = parse_whole_number(part);
    if (!rank) contradicts(environment, "SLURM_GTIDS", "ranks as in 0,2,3");
    result.push_back(*rank);
  }
  return result;
}

/// sbatch and salloc pass their environment on, so a script that was submitted from within a step has the
/// variables of that step besides those of its own job.
bool inherited(const Environment& environment, const SlurmStep& step) {
  const auto job_tasks = find_variable(environment, "SLURM_NTASKS");
  if (job_tasks && parse_whole_number(*job_tasks) != step.tasks) return true;
  const auto list = find_variable(environment, "SLURM_JOB_NODELIST");
  auto job_nodes = list ? expand_hostlist(*list) : step.nodes;
  std::ranges::sort(job_nodes);
  const auto foreign = [&](const std::string& node) { return !std::ranges::binary_search(job_nodes, node); };
  if (std::ranges::any_of(step.nodes, foreign)) return true;
  // A batch script counts as a single task 0.
  return step.rank == 0 && step.ranks_here == std::vector<int>{0} && step.tasks_here > 1;
}

void read_node_position(const Environment& environment, SlurmStep& step) {
  const auto nodes = static_cast<int>(step.nodes.size());
  step.node_id = scheduler_integer(environment, "SLURM_NODEID", 0, nodes - 1);
  const auto tasks =
      run_lengths("SLURM_STEP_TASKS_PER_NODE", scheduler_text(environment, "SLURM_STEP_TASKS_PER_NODE"));
  if (static_cast<int>(tasks.size()) != nodes ||
      std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0}) != step.tasks) {
    contradicts(
        environment, "SLURM_STEP_TASKS_PER_NODE",
        fmt::format("{} tasks (SLURM_STEP_NUM_TASKS) on {} nodes (SLURM_STEP_NODELIST)", step.tasks, nodes));
  }
  step.tasks_here = tasks[static_cast<std::size_t>(step.node_id)];
  step.local_rank = scheduler_integer(environment, "SLURM_LOCALID", 0, step.tasks_here - 1);
}

void check_ranks_here(const Environment& environment, const SlurmStep& step) {
  const auto& ranks = step.ranks_here;
  if (ranks.empty()) return;
  const auto local = static_cast<std::size_t>(step.local_rank);
  if (static_cast<int>(ranks.size()) == step.tasks_here && ranks[local] == step.rank) return;
  contradicts(
      environment, "SLURM_GTIDS",
      fmt::format(
          "{} ranks (SLURM_STEP_TASKS_PER_NODE), of which number {} is {} (SLURM_LOCALID, SLURM_PROCID)",
          step.tasks_here, step.local_rank, step.rank));
}

void read_extras(const Environment& environment, SlurmStep& step) {
  if (environment.contains("SLURM_RESTART_COUNT"))
    step.restart_count = scheduler_integer(environment, "SLURM_RESTART_COUNT");
  step.array_job_id = find_variable(environment, "SLURM_ARRAY_JOB_ID");
  step.array_task_id = find_variable(environment, "SLURM_ARRAY_TASK_ID");
  step.gpus_on_node =
      parse_whole_number(find_variable(environment, "SLURM_GPUS_ON_NODE").value_or("")).value_or(0);
  step.cpus_per_task = parse_whole_number(find_variable(environment, "SLURM_CPUS_PER_TASK").value_or(""), 1);
  step.arbitrary = find_variable(environment, "SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary");
}

}  // namespace

std::optional<SlurmStep> slurm_step(const Environment& environment) {
  for (const auto* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_PROCID"}) {
    if (!environment.contains(name)) return std::nullopt;
  }
  SlurmStep step;
  step.job_id = scheduler_text(environment, "SLURM_JOB_ID");
  step.step_id = scheduler_text(environment, "SLURM_STEP_ID");
  step.nodes = expand_hostlist(scheduler_text(environment, "SLURM_STEP_NODELIST"));
  if (step.nodes.empty()) contradicts(environment, "SLURM_STEP_NODELIST", "at least one node");
  step.tasks = scheduler_integer(environment, "SLURM_STEP_NUM_TASKS", 1);
  step.rank = scheduler_integer(environment, "SLURM_PROCID", 0);
  step.ranks_here = ranks_here(environment);
  read_node_position(environment, step);
  if (inherited(environment, step)) return std::nullopt;
  if (step.tasks > 1 && step.tasks_here > 1 && in_interactive_shell(environment)) return std::nullopt;
  if (step.rank >= step.tasks) {
    contradicts(environment, "SLURM_PROCID", fmt::format("less than SLURM_STEP_NUM_TASKS={}", step.tasks));
  }
  check_ranks_here(environment, step);
  read_extras(environment, step);
  return step;
}

std::uint16_t slurm_port(std::string_view job_id, std::string_view step_id) {
  const auto job = parse_number<std::uint64_t>(job_id);
  if (!job) throw UsageError(fmt::format("SLURM_JOB_ID='{}': expected a number, as Slurm sets.", job_id));
  const std::uint64_t step = parse_number<std::uint64_t>(step_id).value_or(0);
  return static_cast<std::uint16_t>(kFirstPort + (101 * (*job % kPorts) + step) % kPorts);
}

void require_one_task_per_node(const SlurmStep& step, std::string_view program) {
  if (step.tasks_here == 1) return;
  throw UsageError(fmt::format(
      "this Slurm step has {1} tasks on node {2} (SLURM_STEP_TASKS_PER_NODE), and {0} in each of them "
      "would start the node's ranks. Start it once for each node, 'srun --ntasks-per-node=1 {0} ...', or "
      "leave it out: 'srun PROGRAM' with one task for each rank needs no launcher. If this is the only "
      "{0} in the step, add --standalone for a job on this node alone.",
      program, step.tasks_here, step.nodes[static_cast<std::size_t>(step.node_id)]));
}

}  // namespace lockstep
