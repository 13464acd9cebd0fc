#include "plan/launch_plan.hpp"

#include <cstdint>

#include "lockstep/core/error.hpp"
#include "plan/binding_plan.hpp"
#include "plan/devices.hpp"
#include "plan/names.hpp"
#include "plan/python_command.hpp"
#include "plan/signal_list.hpp"

namespace lockstep::launch {
namespace {

/// One node meets nobody: the address is only handed to the ranks.
void plan_own_address(const OptionTable<RunOptions>::Parsed& parsed, LaunchPlan& plan) {
  const RunOptions& options = parsed.options;
  const bool given = parsed.was_given("master-addr") || parsed.was_given("master-port");
  const bool meets = options.standalone || options.rdzv_backend == "c10d";
  if (meets || (!given && options.rdzv_endpoint.empty())) {
    plan.master_addr = options.local_addr.value_or("127.0.0.1");
    return;
  }
  const Endpoint endpoint = static_endpoint(options);
  plan.master_addr = endpoint.host;
  plan.master_port = endpoint.port;
}

/// The seconds of --shutdown-timeout; newer torchruns have a variable for it.
double shutdown_seconds(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment) {
  const auto text = find_variable(environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (!text || text->empty() || parsed.was_given("shutdown-timeout")) return parsed.options.shutdown_timeout;
  try {
    return run_option_table().parse({"--shutdown-timeout=" + *text, "program"}).options.shutdown_timeout;
  } catch (const UsageError& error) {
    throw UsageError(std::string("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: ") + error.what());
  }
}

}  // namespace

LaunchPlan make_plan(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment) {
  const RunOptions& options = parsed.options;
  LaunchPlan plan;
  static_cast<RendezvousPlan&>(plan) = plan_rendezvous(parsed, plan.notices);
  const Command command = plan_command(options, environment);
  plan.command = command.words;
  plan.first_argument = command.first_argument;
  plan.program = command.program;
  if (plan.backend == Backend::alone) plan_own_address(parsed, plan);
  plan.local_world_size = ranks_per_node(options.nproc_per_node, environment);
  plan.role = options.role;
  plan.run_id = options.standalone ? random_id(16) : options.rdzv_id;
  static_cast<OutputPlan&>(plan) = plan_output(options, plan.local_world_size, plan.run_id, environment);
  plan.max_restarts = options.max_restarts;
  plan.shutdown_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(shutdown_seconds(parsed, environment) * 1000));
  plan.bindings = plan_binding(options, plan.local_world_size, environment);
  plan.heartbeat_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.heartbeat_timeout * 1000));
  plan.restart_backoff = std::chrono::milliseconds(static_cast<std::int64_t>(options.restart_backoff * 1000));
  plan.signals_to_handle = options.signals_to_handle;
  plan.end_signals = parse_signals(options.signals_to_handle, plan.notices);
  plan.keep_daemons = options.keep_daemons;
  plan.torchrun_exit_codes = options.torchrun_exit_codes;
  plan.virtual_local_rank = options.virtual_local_rank;
  plan.events = options.event_log_handler == "console";
  plan.backend_name = options.standalone ? "c10d" : options.rdzv_backend;
  plan.log_level = log_level(environment, plan.notices);
  // Rank by rank, before anything is started: a list of GPUs that is too short.
  if (plan.virtual_local_rank) virtual_device(environment, plan.local_world_size - 1);
  return plan;
}

}  // namespace lockstep::launch
