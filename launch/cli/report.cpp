#include "cli/report.hpp"

#include <fmt/core.h>
#include <sys/time.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>

#include "cli/env.hpp"
#include "core/host_name.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/version.hpp"
#include "process/words.hpp"
#include "report/report_page.hpp"
#include "report/run_reader.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output;
  ReportAxis x_axis = ReportAxis::step;
  bool smoothing = true;
  bool follow = false;
  double interval = 30;
};

constexpr std::size_t kMostRuns = 32;

OptionTable<ReportOptions> report_options() {
  return OptionTable<ReportOptions>("lockstep report",
                                    "Draws the output folder of a training, or of several beside each other, "
                                    "as one HTML file that loads "
                                    "nothing: losses, learning rate, gradient norm, evaluations, speed, "
                                    "memory, where the time went, restarts, "
                                    "arguments.")
      .add("output", &ReportOptions::output,
           "The HTML file; default: report.html in RUN, or in this folder if there are several.",
           metavar("FILE"))
      .add("x-axis", &ReportOptions::x_axis,
           "What the x axis counts: steps, epochs, or the time since the first log.")
      .add("smoothing", &ReportOptions::smoothing,
           "Draw noisy curves as a moving mean, with every value behind it.")
      .add("follow", &ReportOptions::follow,
           "Write the file again while the training runs, until it ends or a signal comes.")
      .add("interval", &ReportOptions::interval, "With --follow: seconds between two reports.",
           between(1, 86400))
      .rest("RUN...", &ReportOptions::runs, "Output folders of trainings, or folders of trackers' files.",
            true);
}

double seconds_since_1970() {
  timeval now{};
  ::gettimeofday(&now, nullptr);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_usec) / 1e6;
}

/// Folders of the same name are told apart by their paths.
void tell_apart(std::vector<RunRecord>& runs) {
  std::map<std::string, int> count;
  for (const auto& run : runs) ++count[run.name];
  for (auto& run : runs) {
    if (count[run.name] > 1) run.name = utf8_text(run.folder.string());
  }
}

/// Of runs that cannot be read, all are named.
std::vector<RunRecord> read_runs(const ReportOptions& options) {
  std::vector<RunRecord> runs;
  for (const auto& folder : options.runs) runs.push_back(read_run(folder));
  tell_apart(runs);
  return runs;
}

fs::path output_of(const ReportOptions& options) {
  if (!options.output.empty()) return options.output;
  return options.runs.size() == 1 ? fs::path(options.runs.front()) / "report.html" : fs::path("report.html");
}

void write_report(const std::vector<RunRecord>& runs, const ReportOptions& options, bool goes_on) {
  const PageOptions page{.axis = options.x_axis,
                         .smooths = options.smoothing,
                         .now = seconds_since_1970(),
                         .refresh_seconds = goes_on ? static_cast<int>(std::ceil(options.interval)) : 0,
                         .lockstep_version = version(),
                         .host = host_name(),
                         .host_facts = host_facts()};
  write_atomically(output_of(options), report_page(runs, page));
}

/// SIGINT, SIGTERM and SIGHUP, held back so that they never interrupt the writing of a file.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&signals_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, number);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Whether one came within so many seconds.
  bool wait(double seconds) const {
    const double end = seconds_since_1970() + seconds;
    for (double left = seconds; left > 0; left = end - seconds_since_1970()) {
      const timespec time{static_cast<std::time_t>(left), static_cast<long>(std::fmod(left, 1) * 1e9)};
      if (sigtimedwait(&signals_, nullptr, &time) > 0) return true;
      if (errno != EINTR) return false;
    }
    return false;
  }

 private:
  sigset_t signals_{}, before_{};
};

bool all_have_ended(const std::vector<RunRecord>& runs) {
  return std::ranges::all_of(runs, &RunRecord::has_ended);
}

double last_change_of_all(const std::vector<RunRecord>& runs) {
  double last = 0;
  for (const auto& run : runs) last = std::max(last, std::isfinite(run.last_change) ? run.last_change : 0);
  return last;
}

/// A test may follow the training: the last report is written when an ended training has been quiet for an
/// interval.
int follow(const ReportOptions& options, std::ostream& out, std::ostream& err) {
  const HeldSignals signals;
  std::optional<double> last_change;
  bool says_it_waits = false;
  for (bool goes_on = true; goes_on;) {
    try {
      const auto runs = read_runs(options);
      const double change = last_change_of_all(runs);
      const bool is_quiet = last_change == change || seconds_since_1970() - change > 2 * options.interval;
      goes_on = !(all_have_ended(runs) && is_quiet);
      if (last_change != change || !goes_on) write_report(runs, options, goes_on);
      if (!last_change)
        out << fmt::format("writing {} every {:g} s\n", output_of(options).string(), options.interval)
            << std::flush;
      last_change = change;
    } catch (const DataError& error) {
      // A training that has not logged yet has no files.
      if (!std::exchange(says_it_waits, true))
        err << fmt::format("lockstep report: waiting for the first log: {}\n", error.what()) << std::flush;
    }
    if (!goes_on || !signals.wait(options.interval)) continue;
    if (last_change) write_report(read_runs(options), options, false);
    goes_on = false;
  }
  if (last_change) out << fmt::format("wrote {}\n", output_of(options).string());
  return last_change ? 0 : 1;
}

}  // namespace

int report_command(const Words& words, std::ostream& out, std::ostream& err) {
  const auto parsed = parse_or_help(report_options(), words, out);
  if (!parsed) return 0;
  const ReportOptions& options = parsed->options;
  if (options.runs.size() > kMostRuns)
    throw formatted<UsageError>("at most {} trainings can be compared, not {}.", kMostRuns,
                                options.runs.size());
  if (options.follow) return follow(options, out, err);
  const auto runs = read_runs(options);
  write_report(runs, options, false);
  for (const auto& run : runs) {
    for (const auto& problem : run.problems) err << fmt::format("lockstep report: {}\n", problem);
  }
  out << fmt::format("wrote {}\n", output_of(options).string());
  return 0;
}

}  // namespace lockstep::launch
