#include "config/run_options.hpp"

namespace lockstep::launch {
namespace {

using Table = OptionTable<RunOptions>;

void add_node_options(Table& table) {
  table.section("ranks")
      .add("nnodes", &RunOptions::nnodes, "Number of nodes, or the range of nodes in the form MIN:MAX.",
           metavar("N"))
      .add("nproc-per-node", &RunOptions::nproc_per_node,
           "Ranks on this node: a number, 'cpu' (the CPUs that this process may use), 'gpu' (the GPUs that "
           "it sees) or 'auto' (GPUs if there are any, otherwise CPUs).",
           metavar("N"))
      .add("node-rank", &RunOptions::node_rank,
           "Rank of this node: required for the static backend; for c10d the rank that it requests.",
           at_least(0))
      .add("role", &RunOptions::role, "The role name, which the ranks find in ROLE_NAME.", not_empty());
}

void add_address_options(Table& table) {
  table.section("addresses")
      .add("standalone", &RunOptions::standalone,
           "One node on a free port of the loopback interface, with a random run id. This is also the "
           "default if no address is given.")
      .add("rdzv-backend", &RunOptions::rdzv_backend,
           "How the nodes find each other. 'static': by the address of node 0 and each node's rank; 'c10d': "
           "at --rdzv-endpoint; 'slurm': by the variables of the Slurm step. Not used for one node.",
           metavar("{static,c10d,slurm}"))
      .add("rdzv-endpoint", &RunOptions::rdzv_endpoint,
           "Where the nodes meet: HOST[:PORT]; the default port is 29400 (c10d) or 29500 (static).",
           metavar("HOST:PORT"))
      .add("rdzv-id", &RunOptions::rdzv_id,
           "The run id, the same on all nodes; the ranks find it in TORCHELASTIC_RUN_ID.", metavar("ID"),
           not_empty())
      .add(
          "rdzv-conf", &RunOptions::rdzv_conf,
          "How long nodes wait for each other, in seconds: join_timeout=600 for the minimum number of nodes, "
          "last_call_timeout=30 for more, close_timeout=30, keep_alive_interval=5, keep_alive_max_attempt=3, "
          "timeout=900 (static); and is_host=1 for the node that hosts the endpoint.",
          metavar("KEY=VALUE,..."))
      .add("master-addr", &RunOptions::master_addr, "Name or address of this host, where rank 0 listens.",
           metavar("HOST"), not_empty())
      .add("master-port", &RunOptions::master_port,
           "The port on which rank 0 listens. 0: any free port, which is also the default if neither address "
           "nor port is given.",
           between(0, 65535))
      .add("no-job-secret", &RunOptions::no_job_secret,
           "Turn off authentication between nodes and ranks: anyone who can reach the endpoint may join. Use "
           "it only on networks where every host is trusted, and on all nodes of the job.",
           full_name_only())
      .add("local-addr", &RunOptions::local_addr,
           "Address of this host for MASTER_ADDR if none is given; default: loopback.", metavar("HOST"),
           not_empty());
}

void add_program_options(Table& table) {
  table.section("program")
      .add("module", &RunOptions::module, "The program is a Python module: python -u -m PROGRAM.",
           short_name('m'))
      .add("no-python", &RunOptions::no_python,
           "Run the program itself even if its name ends in .py. Other names are never run with Python.")
      .add("run-path", &RunOptions::run_path,
           "Run the script with Python's runpy.run_path. Takes precedence over --no-python.")
      .add("use-env", &RunOptions::use_env,
           "Ranks find their local rank in LOCAL_RANK. If off, they also get --local-rank=N as their first "
           "argument, as under torch.distributed.launch.",
           not_from_environment())
      .add("virtual-local-rank", &RunOptions::virtual_local_rank,
           "Each rank finds LOCAL_RANK=0, and only its own GPU in CUDA_VISIBLE_DEVICES.");
}

void add_supervision_options(Table& table) {
  table.section("supervision")
      .add("max-restarts", &RunOptions::max_restarts,
           "Maximum number of times that all ranks are restarted after a rank has failed.", at_least(0))
      .add("shutdown-timeout", &RunOptions::shutdown_timeout,
           "Seconds that ranks have to exit after SIGTERM, before SIGKILL. The variable "
           "TORCH_ELASTIC_SHUTDOWN_TIMEOUT is its default.",
           metavar("SECONDS"), between(0, 1e6), full_name_only())
      .add("signals-to-handle", &RunOptions::signals_to_handle,
           "Signals that end the job: they are forwarded to the ranks, which have the shutdown timeout to "
           "exit. Signals of the default list that are left out, and SIGUSR1 and SIGUSR2, "
           "are only forwarded.",
           metavar("NAMES"))
      .add("torchrun-exit-codes", &RunOptions::torchrun_exit_codes,
           "Exit with 1 after every failure, as torchrun does, instead of with the code of the first one.",
           full_name_only())
      .add("keep-daemons", &RunOptions::keep_daemons,
           "Do not end processes that ranks started in a session of their own (setsid), such as daemons. By "
           "default, no process of a job outlives it.",
           full_name_only())
      .add("event-log-handler", &RunOptions::event_log_handler,
           "Where the events of the job go: 'console' writes them as lines of JSON to standard error, in "
           "torchrun's format; 'null' and 'dynamic_rendezvous' discard them.",
           one_of({"null", "console", "dynamic_rendezvous"}))
      .add("monitor-interval", &RunOptions::monitor_interval,
           "Accepted for compatibility, without effect: the exit of a rank is noticed at once.",
           metavar("SECONDS"), more_than(0))
      .add("start-method", &RunOptions::start_method,
           "Accepted for compatibility, without effect: programs are started with exec.",
           one_of({"spawn", "fork", "forkserver"}))
      .add("check", &RunOptions::check,
           "Check the job's nodes instead of running a program: whether all ranks reach each other and "
           "compute correct results, and how fast each link is.",
           not_from_environment())
      .add("dry-run", &RunOptions::dry_run, "Print the ranks and their environment, and start nothing.",
           not_from_environment(), full_name_only());
}

void add_host_options(Table& table) {
  table.section("host")
      .add("cpu-binding", &RunOptions::cpu_binding,
           "'block' binds each rank to CPUs of its own, whole adjacent cores; 'none' lets all ranks run "
           "everywhere; 'auto' is 'block' for several ranks on a host where no GPU is visible and ranks do "
           "not outnumber CPUs.",
           one_of({"auto", "block", "none"}), full_name_only())
      .add("numa-binding", &RunOptions::numa_binding,
           "Bind each rank to CPUs near its GPU or, without GPUs, near a NUMA node in turn: 'node' to all "
           "CPUs of the node, 'socket' to those of its package, 'exclusive' to its own share of the node's "
           "cores, 'core-complex' to those that share one cache.",
           one_of({"node", "socket", "exclusive", "core-complex"}), not_from_environment())
      .add("heartbeat-timeout", &RunOptions::heartbeat_timeout,
           "Seconds after which a rank that makes no progress while the others wait for it ends the job, "
           "with the stacks of all ranks; 0: it is only reported. For programs that use the library.",
           metavar("SECONDS"), between(0, 1e6), full_name_only())
      .add("restart-backoff", &RunOptions::restart_backoff,
           "Seconds to wait before a restart if the attempt lasted less than 10 s; doubled each time, up to "
           "30. 0: restart at once.",
           metavar("SECONDS"), between(0, 30), full_name_only())
      .add(
          "max-recoveries", &RunOptions::max_recoveries,
          "How often lost ranks are replaced, by one new process each, while the others keep their processes "
          "and repeat one step at most; then, and for what cannot be recovered, --max-restarts applies. For "
          "programs that train in run_elastic(). Of several nodes, the coordinator's option counts.",
          metavar("N"), at_least(0), full_name_only())
      .add("recovery-timeout", &RunOptions::recovery_timeout,
           "Seconds that a rank has to leave its training after another one was lost; then it is killed and "
           "replaced too.",
           metavar("SECONDS"), between(0.1, 3600), full_name_only())
      .add("spares", &RunOptions::spares,
           "With --max-recoveries: how many ranks of each node, its first ones, have a process that has done "
           "their set-up already and waits, so that it replaces them at once. It needs a rank's memory.",
           metavar("N"), at_least(0), full_name_only())
      .add("metrics-port", &RunOptions::metrics_port,
           "Serve Prometheus's metrics of this node's ranks by HTTP at this port, path /metrics. 0: a free "
           "port, which is printed.",
           metavar("PORT"), between(0, 65535), full_name_only())
      .add("metrics-address", &RunOptions::metrics_address,
           "The numeric address at which metrics are served: by default only to this host; 0.0.0.0 or :: to "
           "every host that reaches it, without authentication.",
           metavar("ADDRESS"), not_empty(), full_name_only());
}

void add_output_options(Table& table) {
  table.section("output")
      .add("log-dir", &RunOptions::log_dir,
           "Keep files of the ranks in DIR/<run id>_<random>/attempt_<restart>/<local rank>/: error.json, "
           "and those of --redirects and --tee. By default, required files are in a folder below TMPDIR, "
           "whose name is printed. /dev/null: no files at all.",
           metavar("DIR"), not_empty())
      .add("redirects", &RunOptions::redirects,
           "Streams that go to stdout.log and stderr.log in the log folder instead of the console: 0 none, 1 "
           "output, 2 errors, 3 both; or for single local ranks, 0:1,2:3.",
           short_name('r'), metavar("STREAMS"))
      .add("tee", &RunOptions::tee,
           "Streams that go to the console line by line, each line prefixed with the rank, and to files if "
           "there is a log folder. Same format as --redirects.",
           short_name('t'), metavar("STREAMS"))
      .add("local-ranks-filter", &RunOptions::local_ranks_filter,
           "Local ranks whose output is shown on the console.", metavar("0,2"))
      .add("duplicate-stdout-filters", &RunOptions::duplicate_stdout_filters,
           "Lines of --tee that contain any of these texts also go to attempt_<restart>/filtered_stdout.log.",
           metavar("TEXT,TEXT"))
      .add("duplicate-stderr-filters", &RunOptions::duplicate_stderr_filters,
           "The same for standard error and filtered_stderr.log.", metavar("TEXT,TEXT"))
      .add("log-max-size", &RunOptions::log_max_size,
           "At this size (100M; K, M or G), stdout.log is renamed to stdout.log.1, replacing the previous "
           "one, and a new file is started; stderr.log likewise.",
           metavar("SIZE"), full_name_only())
      .add("report-lines", &RunOptions::report_lines,
           "Last lines of standard error that a failure report shows for each failed rank, if they passed "
           "through the launcher or are in a file.",
           metavar("N"), between(0, 1000), full_name_only());
}

Table make_table() {
  Table table("lockstep run",
              "Starts one process for each rank on this host, with the environment variables that torchrun "
              "sets, and stops all of them when one fails.");
  table.rest(
      "program ...", &RunOptions::program,
      "The program and its arguments. A .py file is run with 'python -u' (PYTHON_EXEC names another "
      "interpreter). ${local_rank} in an argument, or in the name of a Python script or module, becomes "
      "the rank's number on this node.",
      false);
  table.grammar({.stop_at_first_positional = true, .unique_prefixes = true, .environment_prefix = "PET_"});
  add_node_options(table);
  add_address_options(table);
  add_program_options(table);
  add_supervision_options(table);
  add_host_options(table);
  add_output_options(table);
  table.refuse("logs-specs", true, "it names a Python class. Leave it out.", not_from_environment());
  return table;
}

}  // namespace

const OptionTable<RunOptions>& run_option_table() {
  static const Table table = make_table();
  return table;
}

}  // namespace lockstep::launch
