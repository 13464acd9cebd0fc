#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep::launch {

/// The options of `lockstep run`: torchrun's names and defaults, and additional ones. Their meaning is
/// documented in the table that defines the flags and `--help`.
struct RunOptions {
  std::string nnodes = "1:1";
  std::string nproc_per_node = "1";
  int node_rank = 0;
  std::string role = "default";

  bool standalone = false;
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::string rdzv_conf;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  std::optional<std::string> local_addr;
  bool no_job_secret = false;

  bool no_python = false;
  bool module = false;
  /// Takes precedence over `no_python` and `module`.
  bool run_path = false;
  bool use_env = true;
  bool virtual_local_rank = false;

  int max_restarts = 0;
  /// Accepted for compatibility with torchrun: ranks are not polled, and programs are always started by exec.
  double monitor_interval = 0.1;
  std::string start_method = "spawn";
  double shutdown_timeout = 30.0;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool torchrun_exit_codes = false;
  bool keep_daemons = false;
  std::string event_log_handler = "null";

  /// nullopt: no files, unless another option requires them; "/dev/null": no files at all.
  std::optional<std::string> log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  /// Empty: all.
  std::string local_ranks_filter;
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  int report_lines = 10;
  /// Empty: unlimited.
  std::string log_max_size;

  std::string cpu_binding = "auto";
  std::optional<std::string> numa_binding;
  double heartbeat_timeout = 0.0;
  double restart_backoff = 1.0;
  int max_recoveries = 0;
  double recovery_timeout = 10.0;
  int spares = 0;
  /// nullopt: no metrics are served.
  std::optional<int> metrics_port;
  std::string metrics_address = "127.0.0.1";

  /// Start lockstep-check instead of a program.
  bool check = false;
  bool dry_run = false;

  std::vector<std::string> program;
};

/// The command line of `lockstep run`, in torchrun's grammar. *Local*.
const OptionTable<RunOptions>& run_option_table();

}  // namespace lockstep::launch
