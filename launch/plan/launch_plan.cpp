#include "plan/launch_plan.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <random>

#include "lockstep/core/error.hpp"
#include "plan/binding_plan.hpp"
#include "plan/devices.hpp"

namespace lockstep::launch {
namespace {

void require_one_node(const RunOptions& options) {
  if (options.nnodes != "1" && options.nnodes != "1:1") {
    throw UsageError(
        "--nnodes '" + options.nnodes +
        "': expected 1 or 1:1. This launcher starts the ranks of one node; use torchrun --no-python for "
        "several.");
  }
  if (options.node_rank != 0) {
    throw UsageError("--node-rank '" + std::to_string(options.node_rank) +
                     "': expected 0, as --nnodes is 1.");
  }
}

bool is_python_script(const std::string& name) { return name.size() > 3 && name.ends_with(".py"); }

void plan_command(const RunOptions& options, const Environment& environment, LaunchPlan& plan) {
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

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::optional<std::uint16_t> chosen_port(int port) {
  if (port == 0) return std::nullopt;
  return static_cast<std::uint16_t>(port);
}

void plan_address(const OptionTable<RunOptions>::Parsed& parsed, LaunchPlan& plan) {
  const RunOptions& options = parsed.options;
  const bool alone = options.standalone || options.rdzv_backend == "c10d";
  const auto endpoint = options.rdzv_endpoint.empty() ? std::pair<std::string, std::optional<std::uint16_t>>()
                                                      : parse_endpoint(options.rdzv_endpoint);
  const bool given = parsed.was_given("master-addr") || parsed.was_given("master-port");
  if (alone || (!given && options.rdzv_endpoint.empty())) {
    plan.master_addr = options.local_addr.value_or("127.0.0.1");
  } else if (!options.rdzv_endpoint.empty()) {
    plan.master_addr = endpoint.first;
    plan.master_port = chosen_port(endpoint.second.value_or(29500));
  } else {
    plan.master_addr = without_brackets(options.master_addr);
    plan.master_port = chosen_port(options.master_port);
  }
}

}  // namespace

std::pair<std::string, std::optional<std::uint16_t>> parse_endpoint(const std::string& text) {
  const auto refuse = [&] {
    return UsageError("--rdzv-endpoint '" + text +
                      "': expected HOST, HOST:PORT or [IPv6]:PORT, with a port up to 65535.");
  };
  const auto bracket = text.starts_with('[') ? text.find(']') : std::string::npos;
  const auto colon = bracket == std::string::npos ? text.find(':') : text.find(':', bracket);
  const auto host_end = bracket == std::string::npos ? std::min(colon, text.size()) : bracket + 1;
  const std::string host = without_brackets(text.substr(0, host_end));
  if (host.empty() || host.find_first_of("[] ") != std::string::npos) throw refuse();
  if (host_end == text.size()) return {host, std::nullopt};
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data() + host_end + 1, end, port);
  if (text[host_end] != ':' || failure != std::errc() || stop != end) throw refuse();
  return {host, port};
}

LaunchPlan make_plan(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment) {
  const RunOptions& options = parsed.options;
  LaunchPlan plan;
  require_one_node(options);
  plan_command(options, environment, plan);
  plan_address(parsed, plan);
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
      std::chrono::milliseconds(static_cast<std::int64_t>(options.shutdown_timeout * 1000));
  plan.bindings = plan_binding(options, plan.local_world_size, environment);
  plan.heartbeat_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(options.heartbeat_timeout * 1000));
  plan.restart_backoff = std::chrono::milliseconds(static_cast<std::int64_t>(options.restart_backoff * 1000));
  return plan;
}

}  // namespace lockstep::launch
