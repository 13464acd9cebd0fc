#include "config/launch_config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "config/devices.hpp"
#include "config/rendezvous_config.hpp"
#include "core/byte_size.hpp"
#include "core/cluster/scheduler_info.hpp"
#include "core/cluster/slurm_step.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_supervisor.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// Bits of torchrun's stream numbers: 1 output, 2 errors, 3 both.
constexpr int kOut = 1;
constexpr int kErr = 2;

/// "3", or "0:1,2:3": the streams of each rank. Ranks that this node does not have are ignored, so one
/// command line can serve nodes with different numbers of ranks.
std::vector<int> streams_of(const std::string& flag, const std::string& text, int ranks) {
  if (const auto all = parse_whole_number(text, 0, kOut | kErr))
    return std::vector<int>(static_cast<std::size_t>(ranks), *all);
  std::vector<int> result(static_cast<std::size_t>(ranks), 0);
  for (const auto part : split_at_commas(text)) {
    const auto colon = std::min(part.find(':'), part.size());
    const auto rank = parse_whole_number(part.substr(0, colon));
    const auto streams = parse_whole_number(part.substr(std::min(colon + 1, part.size())), 0, kOut | kErr);
    if (!rank || !streams) {
      throw UsageError(flag + " '" + text +
                       "': expected 0 (nothing), 1 (output), 2 (errors) or 3 (both), or such a number for "
                       "single local ranks as in 0:1,1:3.");
    }
    if (*rank < ranks) result[static_cast<std::size_t>(*rank)] = *streams;
  }
  return result;
}

std::vector<bool> shown_ranks(const std::string& text, int ranks) {
  std::vector<bool> result(static_cast<std::size_t>(ranks), text.empty());
  if (text.empty()) return result;
  for (const auto part : split_at_commas(text)) {
    const auto rank = parse_whole_number(trim_blanks(part));
    if (!rank) {
      throw UsageError("--local-ranks-filter '" + text +
                       "': expected local ranks with commas between them, as in 0,1.");
    }
    if (*rank < ranks) result[static_cast<std::size_t>(*rank)] = true;
  }
  return result;
}

Sink sink_of(bool redirected, bool teed, bool shown, bool logged) {
  if (teed && shown) return Sink::forward;
  if (redirected || (teed && logged)) return Sink::file;
  return shown ? Sink::console : Sink::nothing;
}

bool wants_no_files(const RunOptions& options) { return options.log_dir == "/dev/null"; }

bool any(const std::vector<int>& streams) {
  return std::ranges::any_of(streams, [](int bits) { return bits != 0; });
}

/// The folder of this run; empty if no files are needed.
std::string log_folder(const RunOptions& options, bool asked_for, const LaunchConfig& config,
                       const Environment& environment) {
  const bool named = config.run_id != RunOptions().rdzv_id;
  const std::string run =
      named ? config.run_id : find_variable(environment, "SLURM_JOB_ID").value_or(config.run_id);
  std::string name = run + "_" + random_id(8);
  std::ranges::replace(name, '/', '_');
  if (wants_no_files(options)) return "";
  if (options.log_dir) return std::filesystem::absolute(*options.log_dir) / name;
  return asked_for ? config.temporary_parent / ("lockstep_" + name) : "";
}

/// Parses "100M" to bytes; K, M and G are powers of 1024.
std::int64_t parse_size(const std::string& text) {
  constexpr std::uint64_t kSmallest = 4096;
  constexpr std::uint64_t kLargest = std::uint64_t{64} << 30;
  const auto bytes = parse_bytes(text).value_or(0);
  if (bytes >= kSmallest && bytes <= kLargest) return static_cast<std::int64_t>(bytes);
  throw formatted<UsageError>(
      "--log-max-size '{}': expected a size from 4K to 64G, as in 500K, 100M or 2G (or a number of bytes).",
      text);
}

/// Configures the ranks' output. Does not create the log folder.
void set_output(const RunOptions& options, const Environment& environment, LaunchConfig& config) {
  const int ranks = config.local_world_size;
  auto redirects = streams_of("--redirects", options.redirects, ranks);
  const auto tee = streams_of("--tee", options.tee, ranks);
  const auto shown = shown_ranks(options.local_ranks_filter, ranks);
  if (wants_no_files(options)) redirects.assign(redirects.size(), 0);
  const bool filtered =
      any(tee) && !(options.duplicate_stdout_filters.empty() && options.duplicate_stderr_filters.empty());
  config.log_dir = log_folder(options, any(redirects) || filtered, config, environment);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto sink = [&](int bit) {
      return sink_of(redirects[i] & bit, tee[i] & bit, shown[i], !config.log_dir.empty());
    };
    config.outputs.push_back({sink(kOut), sink(kErr)});
  }
  config.line_prefix = find_variable(environment, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
  if (!options.log_max_size.empty()) config.log_max_bytes = parse_size(options.log_max_size);
}

constexpr int kWarning = 30;

/// Python's number of a log level.
std::optional<int> level_number(std::string text) {
  text = to_upper_case(text);
  if (text == "DEBUG" || text == "INFO" || text == "NOTSET") return kWarning - 10;
  if (text == "WARNING" || text == "WARN") return kWarning;
  if (text == "ERROR" || text == "CRITICAL" || text == "FATAL") return kWarning + 10;
  return parse_whole_number(text, std::numeric_limits<int>::min());
}

/// Whether LOGLEVEL is above WARNING, as in torchrun.
bool wants_quiet(const Environment& environment, std::vector<std::string>& notices) {
  const std::string text = find_variable(environment, "LOGLEVEL").value_or("");
  const auto number = text.empty() ? kWarning : level_number(text);
  if (!number)
    notices.push_back(fmt::format("LOGLEVEL '{}': expected DEBUG, INFO, WARNING, ERROR or CRITICAL", text));
  return number.value_or(kWarning) > kWarning;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

/// The value of --shutdown-timeout in seconds; its default may be in the variable that newer versions of
/// torchrun use.
double shutdown_seconds(const Parsed& parsed, const Environment& environment) {
  const auto text = find_variable(environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (!text || text->empty() || parsed.was_given("shutdown-timeout")) return parsed.options.shutdown_timeout;
  try {
    return run_option_table().parse({"--shutdown-timeout=" + *text, "program"}).options.shutdown_timeout;
  } catch (const UsageError& error) {
    throw UsageError(std::string("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: ") + error.what());
  }
}

/// 0: unknown name.
int signal_number(std::string_view name) {
  if (!name.starts_with("SIG")) return 0;
  for (int number = 1; number < SIGRTMIN; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && name.substr(3) == known) return number;
  }
  return 0;
}

/// The numbers of "SIGTERM,SIGUSR1". Unknown names are ignored, as in torchrun.
std::vector<int> parse_signals(const std::string& text, std::vector<std::string>& notices) {
  std::vector<int> numbers;
  if (text.empty()) return numbers;
  for (const auto item : split_at_commas(text)) {
    const std::string name(trim_blanks(item));
    const int number = signal_number(name);
    // The launcher needs SIGCHLD to detect the end of ranks.
    if (number == SIGKILL || number == SIGSTOP || number == SIGCHLD) {
      throw UsageError("--signals-to-handle '" + text + "': expected signals that can be handled; " + name +
                       " cannot. Leave it out.");
    }
    if (number == 0) {
      notices.push_back("--signals-to-handle: there is no signal '" + name + "'; it is ignored");
    } else if (std::ranges::count(numbers, number) == 0) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

/// torchrun's --run-path, in a separate process: runs the script with runpy, inside @record if torch is
/// installed.
constexpr const char* kRunPath =
    "import runpy, sys\n"
    "sys.argv = sys.argv[1:]\n"
    "def main():\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "try:\n"
    "    from torch.distributed.elastic.multiprocessing.errors import record\n"
    "except ImportError:\n"
    "    record = lambda function: function\n"
    "record(main)()\n";

std::vector<std::string> interpreter(const RunOptions& options, const Environment& environment) {
  const std::string python = find_variable(environment, "PYTHON_EXEC").value_or("python3");
  if (options.run_path) return {python, "-u", "-c", kRunPath};
  if (options.module) return {python, "-u", "-m"};
  const std::string& name = options.program.front();
  const bool is_script = name.size() > 3 && name.ends_with(".py");
  if (is_script && !options.no_python) return {python, "-u"};
  return {};
}

/// The command with an interpreter if the program needs one (PYTHON_EXEC, otherwise python3). --check runs
/// its own program, installed beside the launcher.
void set_command(const RunOptions& options, const Environment& environment, LaunchConfig& config) {
  if (options.check) {
    if (!options.program.empty())
      throw UsageError("--check runs a program of its own: drop '" + options.program.front() +
                       "', or --check.");
    config.program = "lockstep-check";
    config.command = {program_of_lockstep(config.program)};
    return;
  }
  if (options.program.empty())
    throw UsageError(
        "the program is missing: expected a program after the options, as in 'lockstep run --nproc-per-node "
        "2 ./program'. See --help.");
  if (options.module && options.no_python && !options.run_path)
    throw UsageError("--module and --no-python contradict each other: a module is run by Python. Drop one.");
  if (options.program.front().empty())
    throw UsageError("the program's name is empty: expected a path or a command.");
  config.program = options.program.front();
  config.command = interpreter(options, environment);
  if (!config.command.empty() && (options.run_path || !options.module)) config.script = config.program;
  config.command.push_back(config.program);
  if (!options.use_env) config.command.push_back("--local-rank=${local_rank}");
  config.command.insert(config.command.end(), options.program.begin() + 1, options.program.end());
}

bool gives_any_of(const Parsed& parsed, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return parsed.was_given(name); });
}

void take_nodes(const SlurmStep& step, bool nodes_given, LaunchConfig& config) {
  const int nodes = static_cast<int>(step.nodes.size());
  if (!nodes_given) {
    config.min_nodes = config.max_nodes = nodes;
  } else if (config.min_nodes > nodes) {
    throw formatted<UsageError>(
        "--nnodes asks for {0} nodes, but this Slurm step has {1}: start the launcher by 'srun --nodes={0} "
        "--ntasks-per-node=1', or leave --nnodes out.",
        config.min_nodes, nodes);
  } else if (config.max_nodes < nodes) {
    throw formatted<UsageError>(
        "--nnodes allows {0} nodes, but this Slurm step has {1}: leave --nnodes out, or give srun "
        "--nodes={0}.",
        config.max_nodes, nodes);
  } else {
    config.max_nodes = nodes;
  }
}

/// The address at which the nodes of the step meet, at its first node: --rdzv-endpoint, otherwise
/// --master-addr, which may be another name of that node (of a faster network), otherwise its name.
void take_master(const Parsed& parsed, const SlurmStep& step, LaunchConfig& config) {
  const bool given = parsed.was_given("master-addr");
  if (!config.endpoint.host.empty()) {
    if (given)
      config.notices.push_back(fmt::format("--master-addr is ignored: the nodes meet at {} (--rdzv-endpoint)",
                                           config.endpoint.host));
    return;
  }
  config.endpoint.host = given ? net::without_brackets(parsed.options.master_addr) : step.nodes.front();
  if (config.endpoint.host == step.nodes.front() || std::ranges::count(step.nodes, config.endpoint.host) == 0)
    return;
  throw formatted<UsageError>(
      "--master-addr '{}': expected {}, the first node of this Slurm step, which hosts the job, or another "
      "name "
      "or address of it.",
      config.endpoint.host, step.nodes.front());
}

/// With a rendezvous of its own, a job of several nodes takes the first launchers that come, which may be
/// those of one node. Nobody knows whether each task of the step has started one, so this is no error.
void warn_of_several_launchers(const Environment& environment, LaunchConfig& config) {
  if (config.backend == Backend::alone) return;
  const auto step = slurm_step(environment);
  if (!step || step->tasks_here == 1 || config.max_nodes >= step->tasks) return;
  config.notices.push_back(fmt::format(
      "this Slurm step has {} tasks on node {}, {} in all, for a job of {} nodes: "
      "if each task starts a launcher, the first {} become the nodes, perhaps several on one host, "
      "and the others end with an error. "
      "Start one launcher for each node: srun --ntasks-per-node=1 lockstep run ...",
      step->tasks_here, step->nodes[static_cast<std::size_t>(step->node_id)], step->tasks, config.max_nodes,
      config.max_nodes));
}

std::optional<net::Address> metrics_address(const RunOptions& options) {
  if (!options.metrics_port) return std::nullopt;
  const auto address =
      net::Address::numeric(options.metrics_address, static_cast<std::uint16_t>(*options.metrics_port));
  if (!address) {
    throw formatted<UsageError>(
        "--metrics-address '{}': expected a numeric address of this host, such as 127.0.0.1 (this host "
        "only), or 0.0.0.0 or :: (every host that reaches it).",
        options.metrics_address);
  }
  return address;
}

/// Whether the job has one node and this launcher starts at least as many ranks as the job has tasks.
bool runs_all_tasks(const Environment& environment, const LaunchConfig& config) {
  const auto number = [&](const char* name) {
    return std::atoi(find_variable(environment, name).value_or("0").c_str());
  };
  return number("SLURM_JOB_NUM_NODES") == 1 && number("SLURM_NTASKS") <= config.local_world_size;
}

}  // namespace

std::string program_of_lockstep(const std::string& name) {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").replace_filename(name);
  if (std::filesystem::exists(path)) return path;
  throw formatted<UsageError>(
      "{} is not beside this launcher, in {}. In a checkout 'cmake --build build' builds it ('make demo' "
      "leaves "
      "it out), and the packages of 'make package' have it.",
      name, path.parent_path().string());
}

LaunchConfig make_config(const Parsed& parsed, const Environment& environment) {
  const RunOptions& options = parsed.options;
  LaunchConfig config;
  set_rendezvous(parsed, config);
  set_command(options, environment, config);
  config.local_world_size = ranks_per_node(options.nproc_per_node, environment);
  config.options = options;
  config.run_id = options.standalone ? random_id(16) : options.rdzv_id;
  config.temporary_parent = temporary_parent(environment, config.notices);
  set_output(options, environment, config);
  config.shutdown_timeout = milliseconds_of(shutdown_seconds(parsed, environment));
  config.bindings = cpu_bindings(options, config.local_world_size, environment);
  config.heartbeat_timeout = milliseconds_of(options.heartbeat_timeout);
  if (options.spares > 0 && options.max_recoveries == 0)
    throw formatted<UsageError>(
        "--spares {}: a spare replaces a lost rank, which --max-recoveries N allows: give both, or none.",
        options.spares);
  config.restart_backoff = milliseconds_of(options.restart_backoff);
  config.metrics = metrics_address(options);
  config.end_signals = parse_signals(options.signals_to_handle, config.notices);
  config.backend_name = options.standalone ? "c10d" : options.rdzv_backend;
  config.quiet = wants_quiet(environment, config.notices);
  // Throws before anything is started if the list of GPUs is too short.
  if (options.virtual_local_rank) virtual_device(environment, config.local_world_size - 1);
  return config;
}

void complete_from_slurm(const Parsed& parsed, const Environment& environment, LaunchConfig& config) {
  const bool asked = config.backend == Backend::slurm;
  if (!asked &&
      gives_any_of(parsed, {"nnodes", "node-rank", "rdzv-backend", "rdzv-endpoint", "standalone"})) {
    warn_of_several_launchers(environment, config);
    return;
  }
  const auto step = slurm_step(environment);
  if (!asked && gives_any_of(parsed, {"master-addr", "master-port"})) {
    if (step && step->nodes.size() > 1)
      config.notices.push_back(
          fmt::format("this Slurm step has {} nodes, but with --master-addr or --master-port alone each "
                      "launcher starts a job of its own: leave them out, or give --rdzv-backend slurm",
                      step->nodes.size()));
    return;
  }
  if (!step && config.backend != Backend::slurm) {
    const auto warning = lonely_process_warning(environment);
    if (warning && !runs_all_tasks(environment, config)) config.notices.push_back(*warning);
    return;
  }
  if (!step) {
    throw UsageError(
        "--rdzv-backend slurm: this is not a task of a Slurm step. Start the launcher by 'srun "
        "--ntasks-per-node=1 lockstep run ...' within the job.");
  }
  require_one_task_per_node(*step, "lockstep run");
  if (config.backend != Backend::slurm && step->nodes.size() == 1) return;
  take_nodes(*step, parsed.was_given("nnodes"), config);
  if (config.backend == Backend::alone) config.endpoint = {};
  config.backend = Backend::slurm;
  config.backend_name = "slurm";
  config.node_rank = step->node_id;
  take_master(parsed, *step, config);
  if (parsed.was_given("master-port"))
    config.endpoint.port = static_cast<std::uint16_t>(parsed.options.master_port);
  if (config.endpoint.port == 0) config.endpoint.port = slurm_port(step->job_id, step->step_id);
  if (!parsed.was_given("rdzv-id")) config.run_id = step->job_id;
}

}  // namespace lockstep::launch
