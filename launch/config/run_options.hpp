#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep::launch {

/// The options of `lockstep run`: torchrun's names and defaults, and some of our own.
struct RunOptions {
  /// Number of nodes, "N" or "MIN:MAX".
  std::string nnodes = "1:1";
  /// Ranks on this node: a number, "auto", "cpu" or "gpu".
  std::string nproc_per_node = "1";
  int node_rank = 0;
  /// The name that ranks find in ROLE_NAME.
  std::string role = "default";

  /// One node, loopback, a free port, a run id of its own.
  bool standalone = false;
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  /// "join_timeout=600,is_host=1".
  std::string rdzv_conf;
  std::string master_addr = "127.0.0.1";
  /// 0: a free one.
  int master_port = 29500;
  std::optional<std::string> local_addr;
  bool no_job_secret = false;

  bool no_python = false;
  bool module = false;
  /// Runs the script by Python's runpy. Beats `no_python` and `module`.
  bool run_path = false;
  /// Off: --local-rank=N stands in front of the program's arguments, as torch.distributed.launch does it.
  bool use_env = true;
  /// LOCAL_RANK is 0 for every rank, and CUDA_VISIBLE_DEVICES its one GPU.
  bool virtual_local_rank = false;

  int max_restarts = 0;
  /// Accepted for torchrun's sake: ranks are waited for, not polled.
  double monitor_interval = 0.1;
  /// Accepted for torchrun's sake: programs are always started by exec.
  std::string start_method = "spawn";
  /// Seconds between asking ranks to end (SIGTERM) and ending them (SIGKILL).
  double shutdown_timeout = 30.0;
  /// Names with commas between them.
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool torchrun_exit_codes = false;
  /// What ranks put into a session of its own, as daemons do, outlives them.
  bool keep_daemons = false;
  /// Where events go: "null", "console" or "dynamic_rendezvous".
  std::string event_log_handler = "null";
  /// A folder for the output and error files of ranks, in a folder of its own for each run; none: no files
  /// are kept unless something else asks for them. "/dev/null": none, whatever asks.
  std::optional<std::string> log_dir;
  /// Streams that go to files: 0 none, 1 output, 2 errors, 3 both; or for single local ranks, "0:1,2:3".
  std::string redirects = "0";
  /// Streams that go to the console with the rank in front of each line, and to files when there is a log
  /// folder.
  std::string tee = "0";
  /// The local ranks whose output is shown; empty: all.
  std::string local_ranks_filter;
  /// Lines of `tee` that hold any of these go to a file of their own, too.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  /// Lines of standard error that the failure report repeats for each rank that failed.
  int report_lines = 10;
  /// "100M": at this size a log file is set aside and a new one is begun; empty: never.
  std::string log_max_size;

  /// "auto": each rank of several on a host without GPUs has CPUs of its own.
  std::string cpu_binding = "auto";
  /// torchrun's: node, socket, exclusive or core-complex.
  std::optional<std::string> numa_binding;
  /// Seconds without progress of a rank after which the job is ended; 0: never.
  double heartbeat_timeout = 0.0;
  /// Seconds before a restart after an attempt that was short; doubled each time. 0: restart at once.
  double restart_backoff = 1.0;

  /// Start lockstep-check instead of a program.
  bool check = false;
  /// Print what would be started, and start nothing.
  bool dry_run = false;

  /// The program and its arguments.
  std::vector<std::string> program;
};

/// The items of a list with commas between them, as options and variables write it.
std::vector<std::string_view> split_list(std::string_view text);

/// The command line of `lockstep run`, in torchrun's grammar. *Local*.
const OptionTable<RunOptions>& run_option_table();

}  // namespace lockstep::launch
