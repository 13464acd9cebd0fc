#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"
#include "trace/trace.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

struct TraceOptions {
  std::string folder;
  std::string chrome;
  bool request = false;
};

OptionTable<TraceOptions> trace_options() {
  return OptionTable<TraceOptions>(
             "lockstep trace",
             "Merges what the ranks of a job wrote into a folder: where each rank is, the first collective "
             "in which they differ or somebody is missing, the longest waits, and who comes late.")
      .argument("DIR", &TraceOptions::folder, "The folder of the job's LOCKSTEP_TRACE_DIR.")
      .add("chrome", &TraceOptions::chrome, "Also writes FILE for chrome://tracing and ui.perfetto.dev.",
           metavar("FILE"))
      .add("request", &TraceOptions::request,
           "Makes the ranks of the running job write their traces into DIR, within about a second, and "
           "merges nothing.");
}

int request(const fs::path& folder, std::ostream& out) {
  // The ranks make it only when they write.
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw formatted<Error>("cannot make the folder '{}': {}", folder.string(), failure.message());
  write_atomically(folder / "request", "");
  out << fmt::format("asked; the traces are in {} in about a second\n", folder.string());
  return 0;
}

}  // namespace

int trace_command(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(trace_options(), words, out);
  if (!parsed) return 0;
  const TraceOptions& options = parsed->options;
  if (options.request) return request(options.folder, out);
  const auto traces = read_traces(options.folder);
  const auto merged = merge(traces);
  out << trace_report(traces, merged);
  if (!options.chrome.empty()) write_atomically(options.chrome, chrome_trace(traces, merged).dump());
  return 0;
}

}  // namespace lockstep::launch
