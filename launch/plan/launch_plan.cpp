#include "plan/launch_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <random>

#include "lockstep/core/error.hpp"
#include "plan/binding_plan.hpp"
#include "plan/devices.hpp"
#include "plan/signal_list.hpp"

namespace lockstep::launch {
namespace {

bool is_python_script(const std::string& name) { return name.size() > 3 && name.ends_with(".py"); }

/// The program beside this one.
void plan_check(const RunOptions& options, LaunchPlan& plan) {
  if (!options.program.empty()) {
    throw UsageError("--check runs a program of its own: drop '" + options.program.front() +
                     "', or --check.");
  }
  plan.program = "lockstep-check";
  plan.command = {std::filesystem::read_symlink("/proc/self/exe").replace_filename(plan.program)};
}

void plan_command(const RunOptions& options, const Environment& environment, LaunchPlan& plan) {
  if (options.check) return plan_check(options, plan);
  if (options.program.empty()) {
    throw UsageError("the program ... is missing: expected lockstep run [options] program .... See --help.");
  }
  if (options.module && options.no_python) {
    throw UsageError("--module and --no-python contradict each other: a module is run by Python. Drop one.");
  }
  plan.program = options.program.front();
  if (plan.program.empty()) throw UsageError("the program's name is empty: expected a path or a command.");
  if (options.module || (is_python_script(plan.program) && !options.no_python)) {
    plan.command = {find_variable(environment, "PYTHON_EXEC").value_or("python3"), "-u"};
    if (options.module) plan.command.push_back("-m");
  }
  plan.first_argument = plan.command.size() + 1;
  plan.command.insert(plan.command.end(), options.program.begin(), options.program.end());
}

std::string random_id(int length) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id;
  for (int i = 0; i < length; ++i) id += kDigits[random() % 16];
  return id;
}

/// The run id without the signs that would make it a path.
std::string file_name(std::string id) {
  std::replace(id.begin(), id.end(), '/', '_');
  return id;
}

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
  plan_command(options, environment, plan);
  if (plan.backend == Backend::alone) plan_own_address(parsed, plan);
  plan.local_world_size = ranks_per_node(options.nproc_per_node, environment);
  plan.role = options.role;
  plan.run_id = options.standalone ? random_id(16) : options.rdzv_id;
  plan.outputs = plan_output(options, plan.local_world_size);
  if (options.log_dir) {
    const std::string name = file_name(plan.run_id) + "_" + random_id(8);
    plan.log_dir = std::filesystem::absolute(*options.log_dir) / name;
  }
  plan.max_restarts = options.max_restarts;
  plan.shutdown_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(shutdown_seconds(parsed, environment) * 1000));
  plan.bindings = plan_binding(options, plan.local_world_size, environment);
  plan.heartbeat_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.heartbeat_timeout * 1000));
  plan.restart_backoff = std::chrono::milliseconds(static_cast<std::int64_t>(options.restart_backoff * 1000));
  plan.signals_to_handle = options.signals_to_handle;
  plan.end_signals = parse_signals(options.signals_to_handle, plan.notices);
  plan.torchrun_exit_codes = options.torchrun_exit_codes;
  return plan;
}

}  // namespace lockstep::launch
