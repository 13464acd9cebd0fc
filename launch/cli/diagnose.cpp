// Commands that show where the ranks of a job are: now, and from their traces.
#include "cli/diagnose.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_system.hpp"
#include "core/json_text.hpp"
#include "core/runtime/process_handle.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/process_supervisor.hpp"
#include "process/words.hpp"
#include "trace/chrome_trace.hpp"
#include "trace/rank_trace.hpp"
#include "trace/trace_report.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

struct StacksOptions {
  int process = 0;
};

OptionTable<StacksOptions> stacks_options() {
  return OptionTable<StacksOptions>("lockstep stacks",
                                    "Makes a running 'lockstep run' print, on its own standard error, the "
                                    "stacks of all threads of the job's ranks, on all nodes.")
      .argument("PID", &StacksOptions::process,
                "The process id of the running 'lockstep run', which its messages name.", at_least(1));
}

void check_is_launcher(pid_t process) {
  if (!is_ours(process))
    throw formatted<UsageError>("process {}: no process of this user has that id.", process);
  const std::string program = program_of(process);
  if (SignalMasks(process).blocks(stacks_request()) && program.ends_with("lockstep")) return;
  throw formatted<UsageError>(
      "process {}: that process is not a 'lockstep run'{}. Expected the process id of the launcher, which is "
      "the parent of the ranks.",
      process, program.empty() ? "" : fmt::format(" (it is '{}')", program));
}

struct TraceOptions {
  std::string folder;
  std::string chrome;
  bool request = false;
};

OptionTable<TraceOptions> trace_options() {
  return OptionTable<TraceOptions>(
             "lockstep trace",
             "Merges the traces of a job's ranks: where each rank is, the first collective in which they "
             "differ or a rank is missing, the longest waits, and the ranks that arrive late.")
      .argument("DIR", &TraceOptions::folder, "The folder of the job's LOCKSTEP_TRACE_DIR.")
      .add("chrome", &TraceOptions::chrome, "Also writes FILE for chrome://tracing and ui.perfetto.dev.",
           metavar("FILE"))
      .add("request", &TraceOptions::request,
           "Makes the ranks of the running job write their traces into DIR, within about a second, and "
           "merges nothing.");
}

int request(const fs::path& folder, std::ostream& out) {
  // The ranks create the folder only when they write.
  file_system::make_folders(folder);
  write_atomically(folder / "request", "");
  out << fmt::format("requested; the traces will be in {} in about a second\n", folder.string());
  return 0;
}

}  // namespace

int stacks_command(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(stacks_options(), words, out);
  if (!parsed) return 0;
  const pid_t process = parsed->options.process;
  // The handle ensures that the signal goes to the process that was checked.
  const ProcessHandle handle(process);
  check_is_launcher(process);
  if (!handle.signal(stacks_request())) {
    throw formatted<Error>("process {}: cannot send the request to the launcher: {}.", process,
                           std::strerror(errno));
  }
  out << "requested; the stacks appear on the standard error of process " << process << '\n';
  return 0;
}

int trace_command(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(trace_options(), words, out);
  if (!parsed) return 0;
  const TraceOptions& options = parsed->options;
  if (options.request) return request(options.folder, out);
  const auto traces = read_traces(options.folder);
  const auto merged = merge(traces);
  out << trace_report(traces, merged);
  if (!options.chrome.empty()) write_atomically(options.chrome, json_text(chrome_trace(traces, merged)));
  return 0;
}

}  // namespace lockstep::launch
