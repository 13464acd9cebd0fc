// Commands that prepare a job's data once, and copy them to each node.
#include "cli/data.hpp"

#include <fmt/core.h>

#include <csignal>
#include <filesystem>

#include "core/byte_size.hpp"
#include "core/host_name.hpp"
#include "core/prepared_list.hpp"
#include "core/runtime/stop_signals.hpp"
#include "datasets/cache/staging.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"
#include "process/worker_process.hpp"

namespace lockstep::launch {
namespace {

struct PrepareOptions {
  std::string list;
  std::vector<std::string> program;
};

OptionTable<PrepareOptions> prepare_options() {
  return OptionTable<PrepareOptions>(
             "lockstep prepare",
             "Runs a program once, as a single process, to prepare its data before the job's ranks start. "
             "The program sees LOCKSTEP_PREPARE=1, loads and maps its data, which fills the cache, and exits "
             "(lockstep::preparing). The variables of a rank are replaced by those of a world of one.")
      .rest("program ...", &PrepareOptions::program, "The program and its arguments.", true)
      .grammar({.stop_at_first_positional = true, .environment_prefix = ""})
      .add("list", &PrepareOptions::list,
           "Write the cache entries that the program created or used to FILE, for 'lockstep stage --list "
           "FILE'.",
           metavar("FILE"));
}

/// Starts with an empty list, without the entries of an earlier run.
void begin_list(const std::string& list, Environment& environment) {
  const auto path = std::filesystem::absolute(list);
  AtomicFile(path).commit();
  environment[kPreparedListVariable] = path.string();
}

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
  return OptionTable<StageOptions>("lockstep stage",
                                   "Copies a data set to a node's own disk: the files that its metadata "
                                   "lists, several at a time, with checksums. An interrupted copy leaves "
                                   "nothing behind. A second call uses the copy. Without DEST: a folder in "
                                   "$SLURM_TMPDIR, else $TMPDIR, else /tmp. Run it once on each node.")
      .add("all", &StageOptions::all, "Copy every file of a folder that has no list of its files.")
      .add("list", &StageOptions::list,
           "A list from 'lockstep prepare --list': copies its cache entries into a cache folder on the node. "
           "Give only DEST, and set LOCKSTEP_CACHE to it.")
      .add("threads", &StageOptions::threads,
           "Files to copy at a time. 0: as many as there are CPUs, at least 4 and at most 16.",
           between(0, 256))
      .add("verify", &StageOptions::verify, "Compare the copies' checksums with the source's.")
      .add("reserve", &StageOptions::reserve, "Space to keep free on the disk, as in 20G.")
      .add("print-path", &StageOptions::print_path,
           "Print only the path of the data on standard output: the copy, or the source if the copy does not "
           "fit.")
      .rest("SRC|DEST", &StageOptions::folders,
            "SRC: a folder written by save_to_disk, an entry of map's cache, a file, or with --all any "
            "folder; not with --list. DEST: the folder to create.");
}

StagingOptions copying(const StageOptions& options) {
  const auto reserve = parse_bytes(options.reserve);
  if (!reserve)
    throw formatted<UsageError>("--reserve '{}': expected a number of bytes, as in 20G.", options.reserve);
  return {.threads = options.threads,
          .verify = options.verify,
          .reserve = *reserve,
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

/// Copies the cache entries of the list to the node. If one cannot be copied, the original cache is used for
/// all.
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
                                most == 2 ? "SRC and DEST" : "only DEST, as the list names the sources");
  }
  const StopSignals signals({SIGINT, SIGTERM});
  return options.list.empty() ? stage_one(options) : stage_list(options);
}

}  // namespace

int prepare_command(const Words& words, std::ostream& out, std::ostream& err) {
  const auto parsed = parse_or_help(prepare_options(), words, out);
  if (!parsed) return 0;
  Environment environment = process_environment();
  const std::string task = find_variable(environment, "SLURM_PROCID").value_or("0");
  if (task != "0") {
    err << "lockstep prepare: task " << task << " has nothing to do: task 0 prepares. Use srun --ntasks=1.\n";
    return 0;
  }
  environment = preparing_environment(environment);
  if (!parsed->options.list.empty()) begin_list(parsed->options.list, environment);
  replace_process(parsed->options.program, environment);
}

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
