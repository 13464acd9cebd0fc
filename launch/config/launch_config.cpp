#include "config/launch_config.hpp"

#include <cstdint>

#include "config/binding_config.hpp"
#include "config/devices.hpp"
#include "config/python_command.hpp"
#include "config/signal_list.hpp"
#include "lockstep/core/error.hpp"
#include "process/temporary_folder.hpp"

namespace lockstep::launch {
namespace {

/// One node meets nobody: the address is only handed to the ranks.
void plan_own_address(const OptionTable<RunOptions>::Parsed& parsed, LaunchConfig& config) {
  const RunOptions& options = parsed.options;
  const bool given = parsed.was_given("master-addr") || parsed.was_given("master-port");
  const bool meets = options.standalone || options.rdzv_backend == "c10d";
  if (meets || (!given && options.rdzv_endpoint.empty())) {
    config.master_addr = options.local_addr.value_or("127.0.0.1");
    return;
  }
  const Endpoint endpoint = static_endpoint(options);
  config.master_addr = endpoint.host;
  config.master_port = endpoint.port;
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

LaunchConfig make_config(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment) {
  const RunOptions& options = parsed.options;
  LaunchConfig config;
  static_cast<RendezvousConfig&>(config) = plan_rendezvous(parsed, config.notices);
  const Command command = plan_command(options, environment);
  config.command = command.words;
  config.first_argument = command.first_argument;
  config.program = command.program;
  config.script = command.script;
  if (config.backend == Backend::alone) plan_own_address(parsed, config);
  config.local_world_size = ranks_per_node(options.nproc_per_node, environment);
  config.role = options.role;
  config.run_id = options.standalone ? random_id(16) : options.rdzv_id;
  static_cast<OutputConfig&>(config) =
      plan_output(options, config.local_world_size, config.run_id, environment);
  config.max_restarts = options.max_restarts;
  config.shutdown_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(shutdown_seconds(parsed, environment) * 1000));
  config.bindings = plan_binding(options, config.local_world_size, environment);
  config.heartbeat_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.heartbeat_timeout * 1000));
  config.restart_backoff =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.restart_backoff * 1000));
  config.signals_to_handle = options.signals_to_handle;
  config.end_signals = parse_signals(options.signals_to_handle, config.notices);
  config.keep_daemons = options.keep_daemons;
  config.torchrun_exit_codes = options.torchrun_exit_codes;
  config.virtual_local_rank = options.virtual_local_rank;
  config.events = options.event_log_handler == "console";
  config.backend_name = options.standalone ? "c10d" : options.rdzv_backend;
  config.log_level = log_level(environment, config.notices);
  // Rank by rank, before anything is started: a list of GPUs that is too short.
  if (config.virtual_local_rank) virtual_device(environment, config.local_world_size - 1);
  return config;
}

}  // namespace lockstep::launch
