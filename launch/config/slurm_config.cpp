#include "config/slurm_config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/core/cluster/cluster_environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

bool says_nothing_of_nodes(const OptionTable<RunOptions>::Parsed& parsed) {
  const auto names = {"nnodes",     "node-rank",   "rdzv-backend", "rdzv-endpoint",
                      "standalone", "master-addr", "master-port"};
  return std::none_of(names.begin(), names.end(), [&](const char* name) { return parsed.was_given(name); });
}

void take_nodes(const SlurmStep& step, LaunchConfig& config) {
  const int nodes = static_cast<int>(step.nodes.size());
  if (!config.nodes_given) {
    config.min_nodes = config.max_nodes = nodes;
  } else if (config.min_nodes > nodes) {
    throw UsageError(
        fmt::format("--nnodes asks for {0} nodes, but this Slurm step has {1}: start the launcher by "
                    "'srun --nodes={0} --ntasks-per-node=1', or leave --nnodes out.",
                    config.min_nodes, nodes));
  } else if (config.max_nodes < nodes) {
    throw UsageError(
        fmt::format("--nnodes allows {0} nodes, but this Slurm step has {1}: leave --nnodes out, or "
                    "give srun --nodes={0}.",
                    config.max_nodes, nodes));
  } else {
    config.max_nodes = nodes;
  }
}

/// Ranks for all tasks on the one node of the job are what was meant.
bool runs_all_tasks(const Environment& environment, const LaunchConfig& config) {
  const auto number = [&](const char* name) {
    return std::atoi(find_variable(environment, name).value_or("0").c_str());
  };
  return number("SLURM_JOB_NUM_NODES") == 1 && number("SLURM_NTASKS") <= config.local_world_size;
}

void warn_of_lonely_launcher(const Environment& environment, LaunchConfig& config) {
  const auto warning = lonely_process_warning(environment);
  if (warning && !runs_all_tasks(environment, config)) config.notices.push_back(*warning);
}

}  // namespace

void complete_from_slurm(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment,
                         LaunchConfig& config) {
  if (config.backend != Backend::slurm && !says_nothing_of_nodes(parsed)) return;
  const auto step = slurm_step(environment);
  if (!step && config.backend != Backend::slurm) return warn_of_lonely_launcher(environment, config);
  if (!step) {
    throw UsageError(
        "--rdzv-backend slurm: this is no task of a Slurm step. Start the launcher by 'srun "
        "--ntasks-per-node=1 "
        "lockstep run ...' within the job.");
  }
  require_one_task_per_node(*step, "lockstep run");
  if (config.backend != Backend::slurm && step->nodes.size() == 1) return;
  take_nodes(*step, config);
  config.backend = Backend::slurm;
  config.backend_name = "slurm";
  config.node_rank = step->node_id;
  if (config.endpoint_host.empty()) config.endpoint_host = step->nodes.front();
  if (!config.endpoint_port) config.endpoint_port = slurm_port(step->job_id, step->step_id);
  if (!parsed.was_given("rdzv-id")) config.run_id = step->job_id;
}

}  // namespace lockstep::launch
