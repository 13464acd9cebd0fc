#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/commands.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "trace/chrome_trace.hpp"
#include "trace/merged_trace.hpp"
#include "trace/rank_trace.hpp"
#include "trace/trace_report.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "usage: lockstep trace DIR [--chrome FILE]\n"
    "       lockstep trace --request DIR\n\n"
    "Merges what the ranks of a job wrote into DIR (LOCKSTEP_TRACE_DIR): where each rank is, the first\n"
    "collective in which they differ or somebody is missing, the longest waits, and who comes late.\n\n"
    "  --chrome FILE  Also writes FILE for chrome://tracing and ui.perfetto.dev.\n"
    "  --request DIR  Makes the ranks of a running job write their traces into DIR, the job's folder, "
    "within\n"
    "                 about a second.\n";

struct TraceWords {
  std::string folder;
  std::string chrome;
  bool request = false;
};

TraceWords parse(const Words& words) {
  TraceWords result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--request") {
      result.request = true;
    } else if (word == "--chrome" && i + 1 < words.size()) {
      result.chrome = words[++i];
    } else if (word.starts_with("-") || !result.folder.empty()) {
      throw UsageError("'" + word + "' was not expected. " + kUsage);
    } else {
      result.folder = word;
    }
  }
  if (result.folder.empty()) throw UsageError(std::string("expected a folder. ") + kUsage);
  return result;
}

int request(const fs::path& folder, std::ostream& out) {
  // The ranks make it only when they write.
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw Error("cannot make the folder '" + folder.string() + "': " + failure.message());
  write_atomically(folder / "request", "");
  out << "asked; the traces are in " << folder.string() << " in about a second\n";
  return 0;
}

}  // namespace

int trace_command(const Words& words, std::ostream& out, std::ostream&) {
  if (words.size() == 1 && (words[0] == "--help" || words[0] == "-h")) {
    out << kUsage;
    return 0;
  }
  const TraceWords parsed = parse(words);
  if (parsed.request) return request(parsed.folder, out);
  const auto traces = read_traces(parsed.folder);
  const auto merged = merge(traces);
  out << trace_report(traces, merged);
  if (parsed.chrome.empty()) return 0;
  write_atomically(parsed.chrome, chrome_trace(traces, merged).dump());
  return 0;
}

}  // namespace lockstep::launch
