#include <fmt/core.h>

#include <csignal>

#include "cli/commands.hpp"
#include "core/host_name.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/stop_signals.hpp"
#include "lockstep/datasets/cache_folder.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/staging.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

struct StageOptions {
  bool all = false;
  bool verify = true;
  bool print_path = false;
  int threads = 0;
  std::string reserve = "0";
  std::string list;
  std::vector<std::string> folders;
};

OptionTable<StageOptions> stage_options() {
  return OptionTable<StageOptions>(
             "lockstep stage",
             "Copies a data set's files to a node's own disk: those that its own list names, several at a "
             "time, checked, whole or not at all. A second call finds the copy. Without DEST: a folder in "
             "$SLURM_TMPDIR, else $TMPDIR, else /tmp. Run it once on each node.")
      .add("all", &StageOptions::all, "Copy every file of a folder that has no list of its files.")
      .add("list", &StageOptions::list,
           "A list from 'lockstep prepare --list': its cache entries become a cache folder on the node, and "
           "the only folder to be named is DEST. Set LOCKSTEP_CACHE to it.")
      .add("threads", &StageOptions::threads,
           "Files that are copied at once. 0: as many as there are CPUs, at least 4 and at most 16.",
           between(0, 256))
      .add("verify", &StageOptions::verify, "Compare the copies' checksums with the source's.")
      .add("reserve", &StageOptions::reserve, "Room to stay free on the disk, as in 20G.")
      .add("print-path", &StageOptions::print_path,
           "Print nothing on standard output but where the data are now: the copy, or the source where it "
           "does not fit.")
      .rest("SRC|DEST", &StageOptions::folders,
            "A folder written by save_to_disk, an entry of map's cache, a file, or with --all any folder "
            "(SRC, not with --list); and the folder to be made (DEST).");
}

std::uint64_t reserve_of(const StageOptions& options) {
  const auto bytes = parse_bytes(options.reserve);
  if (bytes) return *bytes;
  throw formatted<UsageError>("--reserve '{}': expected a number of bytes, as in 20G.", options.reserve);
}

StagingOptions copying(const StageOptions& options) {
  return {.threads = options.threads,
          .verify = options.verify,
          .reserve = reserve_of(options),
          .stop = [] { return StopSignals::received() != 0; },
          .progress = {}};
}

StagingResult stage_one(const StageOptions& options) {
  const std::string& source = options.folders.front();
  const StagingPlan plan = plan_staging(source, options.all);
  const auto destination = options.folders.size() == 2
                               ? std::filesystem::path(options.folders[1])
                               : default_staging_folder(source, process_environment());
  return stage_files(plan, destination, copying(options));
}

/// The entries' cache folder again, on the node; all of them, or none where one does not fit.
StagingResult stage_list(const StageOptions& options) {
  StagingResult sum;
  for (const auto& entry : read_prepared_list(options.list)) {
    const auto cache = entry.parent_path();
    sum.folder = options.folders.empty() ? default_staging_folder(cache, process_environment())
                                         : std::filesystem::path(options.folders.front());
    const auto result = stage_files(plan_staging(entry), sum.folder / entry.filename(), copying(options));
    sum.copied = sum.copied || result.copied;
    sum.files += result.files;
    sum.bytes += result.bytes;
    sum.seconds += result.seconds;
    sum.warning = result.warning;
    if (sum.warning.empty()) continue;
    sum.folder = cache;
    break;
  }
  return sum;
}

StagingResult stage(const StageOptions& options) {
  const std::size_t most = options.list.empty() ? 2 : 1;
  if (options.list.empty() && options.folders.empty()) throw UsageError("expected SRC, or --list FILE.");
  if (options.folders.size() > most) {
    throw formatted<UsageError>("'{}' was not expected: give {}.", options.folders[most],
                                most == 2 ? "SRC and DEST" : "DEST, for the list names the sources");
  }
  const StopSignals signals({SIGINT, SIGTERM});
  return options.list.empty() ? stage_one(options) : stage_list(options);
}

}  // namespace

int stage_command(const Words& words, std::ostream& out, std::ostream& err) {
  const auto parsed = parse_or_help(stage_options(), words, out);
  if (!parsed) return 0;
  StagingResult result;
  try {
    result = stage(parsed->options);
  } catch (const Error& error) {
    if (StopSignals::received() == 0) throw;
    err << "lockstep stage: " << error.what() << '\n';
    return 128 + StopSignals::received();
  }
  const bool quiet = parsed->options.print_path;
  const std::string line = fmt::format("{}: {}\n", host_name(), staging_text(result));
  (quiet || !result.warning.empty() ? err : out) << line;
  if (quiet) out << result.folder.string() << '\n';
  return 0;
}

}  // namespace lockstep::launch
