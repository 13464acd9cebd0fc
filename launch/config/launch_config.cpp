#include "config/launch_config.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "config/binding_config.hpp"
#include "config/devices.hpp"
#include "config/python_command.hpp"
#include "lockstep/core/error.hpp"
#include "process/temporary_folder.hpp"

namespace lockstep::launch {
namespace {

constexpr int kWarning = 30;

/// Python's number of a level.
std::optional<int> level_number(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  if (text == "DEBUG" || text == "INFO" || text == "NOTSET") return kWarning - 10;
  if (text == "WARNING" || text == "WARN") return kWarning;
  if (text == "ERROR" || text == "CRITICAL" || text == "FATAL") return kWarning + 10;
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

/// One node meets nobody: the address is only handed to the ranks.
void set_own_address(const OptionTable<RunOptions>::Parsed& parsed, LaunchConfig& config) {
  const RunOptions& options = parsed.options;
  const bool given = parsed.was_given("master-addr") || parsed.was_given("master-port");
  const bool meets = options.standalone || options.rdzv_backend == "c10d";
  if (meets || (!given && options.rdzv_endpoint.empty())) {
    config.master_addr = options.local_addr.value_or("127.0.0.1");
    return;
  }
  const net::HostPort endpoint = static_endpoint(options);
  config.master_addr = endpoint.host;
  config.master_port = chosen_port(endpoint.port);
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

/// 0: no signal has that name.
int signal_number(std::string_view name) {
  if (!name.starts_with("SIG")) return 0;
  for (int number = 1; number < SIGRTMIN; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && name.substr(3) == known) return number;
  }
  return 0;
}

std::string_view next_name(std::string_view& rest) {
  const auto comma = std::min(rest.find(','), rest.size());
  std::string_view name = rest.substr(0, comma);
  rest.remove_prefix(std::min(comma + 1, rest.size()));
  while (name.starts_with(' ')) name.remove_prefix(1);
  while (name.ends_with(' ')) name.remove_suffix(1);
  return name;
}

/// The launcher learns from this one that a rank has ended.
bool is_needed(int number) { return number == SIGCHLD; }

}  // namespace

LogLevel log_level(const Environment& environment, std::vector<std::string>& notices) {
  const auto text = find_variable(environment, "LOGLEVEL");
  if (!text || text->empty()) return LogLevel::warning;
  const auto number = level_number(*text);
  if (!number) {
    notices.push_back("LOGLEVEL '" + *text + "': expected DEBUG, INFO, WARNING, ERROR or CRITICAL");
    return LogLevel::warning;
  }
  if (*number < kWarning) return LogLevel::info;
  return *number == kWarning ? LogLevel::warning : LogLevel::error;
}

LaunchConfig make_config(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment) {
  const RunOptions& options = parsed.options;
  LaunchConfig config;
  static_cast<RendezvousConfig&>(config) = rendezvous_config(parsed, config.notices);
  const Command command = command_of(options, environment);
  config.command = command.words;
  config.first_argument = command.first_argument;
  config.program = command.program;
  config.script = command.script;
  if (config.backend == Backend::alone) set_own_address(parsed, config);
  config.local_world_size = ranks_per_node(options.nproc_per_node, environment);
  config.role = options.role;
  config.run_id = options.standalone ? random_id(16) : options.rdzv_id;
  static_cast<OutputConfig&>(config) =
      output_config(options, config.local_world_size, config.run_id, environment);
  config.max_restarts = options.max_restarts;
  config.shutdown_timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(shutdown_seconds(parsed, environment) * 1000));
  config.bindings = cpu_bindings(options, config.local_world_size, environment);
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

std::vector<int> parse_signals(const std::string& text, std::vector<std::string>& notices) {
  std::vector<int> numbers;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string name(next_name(rest));
    const int number = signal_number(name);
    if (number == SIGKILL || number == SIGSTOP || is_needed(number)) {
      throw UsageError("--signals-to-handle '" + text + "': expected signals that can be handled; " + name +
                       " cannot. Leave it out.");
    }
    if (number == 0) {
      notices.push_back("--signals-to-handle: there is no signal '" + name + "'; it is passed over");
    } else if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

}  // namespace lockstep::launch
