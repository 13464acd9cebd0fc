#include "cli/run.hpp"

#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "agent/agent.hpp"
#include "agent/open_coordinator.hpp"
#include "agent/worker_spec.hpp"
#include "config/launch_config.hpp"
#include "core/host_name.hpp"
#include "core/runtime/signal_free_thread.hpp"
#include "failure/error_file.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/version.hpp"
#include "metrics/job_metrics.hpp"
#include "metrics/metrics_server.hpp"
#include "process/process_supervisor.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

/// The status of the ranks, or 1 with --torchrun-exit-codes.
int exit_status(const LaunchConfig& config, int status) {
  return config.options.torchrun_exit_codes && status != 0 ? 1 : status;
}

/// Exits with the status soon, unless the process has ended by then: a reader that has stopped reading does
/// not keep the launcher any longer.
void exit_soon(int status) {
  static constexpr std::chrono::seconds kTimeToPrint{2};
  signal_free_thread([status] {
    std::this_thread::sleep_for(kTimeToPrint);
    _exit(status);
  }).detach();
}

int launch(const LaunchConfig& config, Environment environment) {
  // Destroyed last: while it waits for a reader, signals have their default action.
  Console console(environment);
  // Before the first line, and so before any thread, because it forks the orphan reaper.
  ProcessSupervisor supervision(config.temporary_parent, config.end_signals, config.options.keep_daemons);
  if (!config.quiet) {
    for (const auto& notice : config.notices) console.say(notice);
  }
  JobMetrics metrics(config.run_id, host_name(), version());
  std::optional<MetricsServer> server;
  if (config.metrics) {
    server.emplace(*config.metrics, [&metrics] { return metrics.text(net::Clock::now()); });
    if (!config.quiet) console.say("metrics are at http://{}/metrics", server->address().text());
  }
  const JobSecret secret = secret_for(config, environment);
  const auto coordinator = open_coordinator(config, secret);
  environment["LOCKSTEP_JOB_TOKEN"] = secret.value;
  supervision.reaper.add_tag(environment);
  Agent agent(config, environment, supervision, *coordinator, console, config.metrics ? &metrics : nullptr);
  const int status = exit_status(config, agent.run());
  if (agent.was_forced()) exit_soon(status);
  return status;
}

}  // namespace

int run_command(const Words& words, std::ostream& out, std::ostream& err) {
  const auto parsed = parse_or_help(run_option_table(), words, out);
  return parsed ? run_job(*parsed, out, err) : 0;
}

int run_job(const OptionTable<RunOptions>::Parsed& parsed, std::ostream& out, std::ostream& err) {
  const Environment environment = process_environment();
  LaunchConfig config = make_config(parsed, environment);
  complete_from_slurm(parsed, environment, config);
  if (parsed.options.dry_run) {
    print_config(config, environment, out);
    return 0;
  }
  const auto pass_on = [&](const std::exception& error, int exit_code) {
    const std::string problem = pass_on_error(error.what(), environment, exit_code);
    if (!problem.empty()) err << "lockstep run: " << problem << '\n';
  };
  try {
    return launch(config, environment);
  } catch (const SpawnError& error) {
    pass_on(error, error.exit_code());
    throw SpawnError(error.what(), exit_status(config, error.exit_code()));
  } catch (const std::exception& error) {
    pass_on(error, 1);
    throw;
  }
}

}  // namespace lockstep::launch
