#include "report/run_reader.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/utf8_check.hpp"
#include "failure/error_file.hpp"
#include "lockstep/core/error.hpp"
#include "report/event_files.hpp"
#include "report/number_words.hpp"
#include "report/profile_reader.hpp"
#include "report/rank_records.hpp"
#include "report/run_files.hpp"
#include "report/time_shares.hpp"
#include "report/tracker_tables.hpp"
#include "report/trainer_files.hpp"
#include "trace/rank_trace.hpp"
#include "trace/trace_report.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

double change_time(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) / 1e9;
}

double last_change_of(const TrackerFiles& files) {
  double last = std::max(change_time(files.json_lines), change_time(files.csv));
  for (const auto& path : files.events) last = std::max(last, change_time(path));
  return last;
}

/// A training logs into one folder. Others are of earlier trainings, or of other ones (run_name).
fs::path newest_tracker_folder(const RunFiles& files, RunRecord& run) {
  const auto newest = std::ranges::max_element(
      files.trackers, {}, [](const auto& entry) { return last_change_of(entry.second); });
  for (const auto& [folder, ignored] : files.trackers) {
    if (folder == newest->first) continue;
    run.problems.push_back(not_shown("The trackers' files", folder.string()));
  }
  return newest->first;
}

void read_into(std::vector<RunLog>& logs, RunRecord& run, const fs::path& path,
               RunLog (*read)(const fs::path&, const std::string&)) {
  if (path.empty()) return;
  const std::string source = path_within(run.folder, path);
  try {
    logs.push_back(read(path, source));
    run.sources.push_back(source);
  } catch (const DataError& error) {
    run.problems.emplace_back(error.what());
  }
}

std::vector<RunLog> read_trackers(const RunFiles& files, RunRecord& run) {
  std::vector<RunLog> logs;
  if (files.trackers.empty()) return logs;
  const TrackerFiles& trackers = files.trackers.at(newest_tracker_folder(files, run));
  read_into(logs, run, trackers.json_lines, read_json_lines);
  read_into(logs, run, trackers.csv, read_csv_table);
  if (trackers.events.empty()) return logs;
  const std::string source =
      path_within(run.folder, trackers.events.front().parent_path() / "events.out.tfevents.*");
  logs.push_back(read_event_files(trackers.events, source));
  run.sources.push_back(source);
  for (const auto& path : trackers.events) {
    if (const auto host = host_in_event_file_name(path.filename()); !host.empty())
      run.hosts.insert(utf8_text(host));
  }
  return logs;
}

/// Each name from the source that has the most values of it; of equal ones from the first.
void take_series(std::vector<RunLog>& logs, RunRecord& run) {
  for (auto& log : logs) {
    for (auto& [name, points] : log.take_series()) {
      if (points.empty()) continue;
      const auto found = run.series.find(name);
      if (found != run.series.end() && found->second.points.size() >= points.size()) continue;
      run.series[name] = {std::move(points), log.source()};
    }
  }
}

/// Adds a series' moments. Both are in ascending steps, which are mostly the same ones.
void merge_into(std::vector<RunRecord::StepTime>& clock, const std::vector<LoggedPoint>& points) {
  std::vector<RunRecord::StepTime> missing;
  if (clock.empty()) missing.reserve(points.size());
  auto known = clock.begin();
  for (const auto& point : points) {
    if (!std::isfinite(point.time)) continue;
    while (known != clock.end() && known->step < point.step) ++known;
    if (known == clock.end() || known->step != point.step) {
      missing.push_back({point.step, point.time, point.time});
      continue;
    }
    known->first = std::min(known->first, point.time);
    known->last = std::max(known->last, point.time);
  }
  if (clock.empty()) return std::swap(clock, missing);
  const auto size = static_cast<std::ptrdiff_t>(clock.size());
  clock.insert(clock.end(), missing.begin(), missing.end());
  std::ranges::inplace_merge(clock, clock.begin() + size, {}, &RunRecord::StepTime::step);
}

/// The first and the last moment at which each step was logged, of the first source that has times.
void take_clock(const std::vector<RunLog>& logs, RunRecord& run) {
  for (const auto& log : logs) {
    if (!run.clock.empty()) return;
    for (const auto& [name, points] : log.series()) merge_into(run.clock, points);
  }
}

/// Of the training losses.
double last_step_of(const RunRecord& run) {
  const auto& loss = run.points_of("loss");
  return loss.empty() ? 0 : loss.back().step;
}

void take_starts(const std::vector<RunLog>& logs, RunRecord& run) {
  for (const auto& log : logs) {
    const auto& starts = log.starts();
    if (starts.size() < 2 && (starts.empty() || starts.front().step == 0)) continue;
    for (std::size_t i = starts.front().step > 0 ? 0 : 1; i < starts.size(); ++i) {
      const bool was_over = run.max_steps && *run.max_steps > 0 && starts[i].step >= *run.max_steps &&
                            last_step_of(run) <= starts[i].step;
      const std::string text = was_over ? "started again after its end, with nothing left to do"
                               : starts[i].step > 0
                                   ? fmt::format("continued after step {}", count_words(starts[i].step))
                                   : "started again from the beginning";
      run.events.push_back({RunEvent::Kind::restart, starts[i].step, starts[i].time, text});
    }
    return;
  }
}

void take_parameters(const std::vector<RunLog>& logs, RunRecord& run) {
  for (const auto& log : logs) {
    if (!run.arguments.empty() || log.parameters().empty()) continue;
    for (const auto& [name, value] : log.parameters()) run.arguments[utf8_text(name)] = value;
    run.arguments_source = log.source();
  }
}

/// When the ranks of an attempt wrote their last output; kUnknown if it is not kept.
double last_output_of(const fs::path& attempt) {
  double last = 0;
  std::error_code failure;
  fs::recursive_directory_iterator entry(attempt, failure);
  for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure)) {
    if (entry->is_regular_file(failure)) last = std::max(last, change_time(entry->path()));
  }
  return last > 0 ? last : kUnknown;
}

/// The restart count in attempt_<n>, or attempt_<n>.<m>.
int number_of_attempt(const fs::path& folder) {
  int number = 0;
  return std::sscanf(folder.filename().c_str(), "attempt_%d", &number) == 1 ? number : 0;
}

/// The failures of the launcher's attempts: of each, the first rank that failed by itself.
void read_failures(const RunFiles& files, RunRecord& run) {
  std::map<fs::path, std::vector<fs::path>> by_attempt;
  for (const auto& path : files.errors) by_attempt[path.parent_path().parent_path()].push_back(path);
  for (const auto& [attempt, paths] : by_attempt) {
    RunEvent event{RunEvent::Kind::failure, kUnknown, kUnknown, ""};
    bool is_cause = false;
    for (const auto& path : paths) {
      const auto content = error_content(path);
      if (content.is_null()) continue;
      const double time = static_cast<double>(time_of(content));
      const bool causes = !is_secondary(content);
      if (!event.text.empty() && (is_cause > causes || (is_cause == causes && event.time <= time))) continue;
      is_cause = causes;
      event.time = time > 0 ? time : change_time(path);
      event.text = fmt::format("{}: local rank {} failed: {}", path_within(run.folder, attempt),
                               path.parent_path().filename().string(), message_of(content));
    }
    if (!event.text.empty()) run.events.push_back(std::move(event));
  }
  // An attempt after which there was another one has failed.
  for (const auto& attempt : files.attempts) {
    const auto is_later = [&](const fs::path& other) {
      return other.parent_path() == attempt.parent_path() &&
             number_of_attempt(other) > number_of_attempt(attempt);
    };
    if (by_attempt.contains(attempt) || std::ranges::none_of(files.attempts, is_later)) continue;
    run.events.push_back(
        {RunEvent::Kind::failure, kUnknown, last_output_of(attempt),
         fmt::format("{}: it failed without an error file, as after a signal; its logs and the "
                     "launcher's output may tell more",
                     path_within(run.folder, attempt))});
  }
}

/// Events of which only the time is known, at the last step that was logged before.
void place_events(RunRecord& run) {
  for (auto& event : run.events) {
    if (std::isfinite(event.step) || !std::isfinite(event.time)) continue;
    const auto before = std::find_if(run.clock.rbegin(), run.clock.rend(),
                                     [&](const auto& moment) { return moment.last <= event.time; });
    if (before != run.clock.rend()) event.step = before->step;
  }
}

std::vector<LoggedEvaluation> logged_evaluations(const RunRecord& run) {
  std::vector<LoggedEvaluation> evaluations;
  for (const auto& [name, series] : run.series) {
    if (!name.starts_with("eval_") || !name.ends_with("_runtime")) continue;
    for (const auto& point : series.points) evaluations.push_back({point.time, point.value});
  }
  return evaluations;
}

void read_spent_time(const RunFiles& files, RunRecord& run) {
  const auto evaluations = logged_evaluations(run);
  for (const auto& folder : files.trace_folders) {
    try {
      auto traces = read_traces(folder);
      const RankTrace first = traces.front();
      std::vector<SpentTime> ranks;
      double waited = 0, seconds = 0;
      for (auto& trace : traces) {
        run.hosts.insert(utf8_text(trace.host));
        run.world_size = std::max(run.world_size, trace.world_size);
        // Rank 0 logs.
        if (first.rank == 0) add_evaluations(trace, first, evaluations);
        auto spent = spent_time_of(trace);
        if (spent.seconds > 0) ranks.push_back(std::move(spent));
      }
      run.sources.push_back(path_within(run.folder, folder / "trace-rank-*.json"));
      if (ranks.empty() || !run.spent.empty()) continue;
      for (const auto& rank : lateness_of(traces, merge(traces))) waited += rank.waited;
      for (const auto& rank : ranks) seconds += rank.seconds;
      run.spent_note =
          fmt::format("From the traces in {}, which cover {} of {}.", path_within(run.folder, folder),
                      duration_words(seconds / static_cast<double>(ranks.size())),
                      counted(static_cast<double>(ranks.size()), "rank"));
      if (ranks.size() > 1)
        run.spent_note +=
            fmt::format(" In collectives, ranks waited {} of the time for the last one to arrive.",
                        percent_words(waited / seconds));
      run.spent = std::move(ranks);
    } catch (const DataError& error) {
      run.problems.emplace_back(error.what());
    }
  }
}

/// The last profile of the first rank that has one: all ranks do the same.
void read_operators(const RunFiles& files, RunRecord& run) {
  constexpr std::size_t kMostOperators = 12;
  const fs::path* chosen = nullptr;
  std::pair<int, std::int64_t> best;
  for (const auto& path : files.profiles) {
    // rank_<rank>.<step>.pt.trace.json
    int rank = 0;
    long long step = 0;
    if (std::sscanf(path.filename().c_str(), "rank_%d.%lld", &rank, &step) != 2) continue;
    const std::pair<int, std::int64_t> order(-rank, step);
    if (chosen != nullptr && order <= best) continue;
    chosen = &path;
    best = order;
  }
  if (chosen == nullptr) return;
  const std::string source = path_within(run.folder, *chosen);
  try {
    auto profile = read_profile(*chosen);
    double seconds = 0;
    for (const auto& one : profile.operators) seconds += one.seconds;
    run.operators_seconds = seconds;
    run.operators_note =
        fmt::format("From {}: {} without those that they called, in all {}{}.", source,
                    profile.is_of_gpu ? "the GPU's kernels, copies and fills," : "operators on the CPU",
                    duration_words(seconds),
                    profile.steps > 0 ? fmt::format(", in {} of {} each", counted(profile.steps, "step"),
                                                    duration_words(profile.seconds_per_step))
                                      : "");
    profile.operators.resize(std::min(profile.operators.size(), kMostOperators));
    run.operators = std::move(profile.operators);
    run.sources.push_back(source);
  } catch (const DataError& error) {
    run.problems.emplace_back(error.what());
  }
}

/// Without traces: the evaluations, whose time every Trainer logs, and all else.
void take_evaluation_time(RunRecord& run) {
  if (!run.spent.empty()) return;
  const auto& runtimes = run.points_of("train_runtime");
  const double logged = runtimes.empty() ? kUnknown : runtimes.back().value;
  const double total = run.train_seconds.value_or(logged);
  double evaluation = 0;
  for (const auto& point : run.points_of("eval_runtime"))
    evaluation += std::isfinite(point.value) ? point.value : 0;
  if (!(total > 0) || !(evaluation > 0) || evaluation >= total) return;
  run.spent.push_back({"all ranks", total, {{kTraining, total - evaluation}, {"evaluation", evaluation}}});
  run.spent_note = "From the logged times of evaluations; no record of a rank shows the parts of a step.";
}

/// The last log of a training that ended by itself has its run time.
void find_end(RunRecord& run) {
  const auto& runtime = run.points_of("train_runtime");
  const double last_loss = last_step_of(run);
  if (!runtime.empty() && runtime.back().step >= last_loss) run.has_ended = true;
  const bool goes_on = last_loss > run.global_step.value_or(0);
  if (goes_on) run.global_step = last_loss;
  if (!run.global_step || !run.max_steps || *run.max_steps <= 0 || *run.global_step < *run.max_steps) return;
  // Beyond the end of the run that wrote the state: a later one has another end, which its next checkpoint
  // tells.
  if (goes_on && *run.global_step > *run.max_steps) {
    run.max_steps.reset();
  } else {
    run.has_ended = true;
  }
}

void take_last_change(const RunFiles& files, RunRecord& run) {
  double last = 0;
  for (const auto& [folder, trackers] : files.trackers) last = std::max(last, last_change_of(trackers));
  for (const auto& path : files.states) last = std::max(last, change_time(path));
  for (const auto& path : files.results) last = std::max(last, change_time(path));
  if (last > 0) run.last_change = last;
}

std::string name_of(const fs::path& folder) {
  const fs::path normal = fs::absolute(folder).lexically_normal();
  return utf8_text((normal.has_filename() ? normal : normal.parent_path()).filename().string());
}

[[noreturn]] void fail_without_files(const fs::path& folder) {
  throw DataError(fmt::format("'{}' has nothing that a report shows: neither it nor a folder in it has {}.",
                              folder.string(), known_run_files()));
}

[[noreturn]] void fail_without_content(const RunRecord& run) {
  throw DataError(fmt::format("'{}' has no values that a report shows: {}", run.folder.string(),
                              run.problems.empty()
                                  ? "its files are empty: is the training still before its first log?"
                                  : fmt::format("{}", fmt::join(run.problems, " "))));
}

}  // namespace

RunRecord read_run(const fs::path& folder) {
  std::error_code failure;
  if (!fs::is_directory(folder, failure))
    throw UsageError(fmt::format("'{}' is not a folder.", folder.string()));
  RunRecord run;
  run.folder = folder;
  run.name = name_of(folder);
  const RunFiles files = find_run_files(folder);
  if (files.is_empty()) fail_without_files(folder);
  run.problems = files.problems;
  auto logs = read_trackers(files, run);
  logs.push_back(read_trainer_files(files, run));
  take_clock(logs, run);
  take_series(logs, run);
  take_starts(logs, run);
  take_parameters(logs, run);
  for (const auto& log : logs) {
    for (const auto& problem : log.problems()) run.problems.push_back(problem);
  }
  read_failures(files, run);
  read_spent_time(files, run);
  take_rank_records(files.ranks, run);
  take_evaluation_time(run);
  read_operators(files, run);
  place_events(run);
  find_end(run);
  take_last_change(files, run);
  if (run.series.empty() && run.spent.empty() && run.events.empty() && run.operators.empty())
    fail_without_content(run);
  std::ranges::stable_sort(run.events, {},
                           [](const RunEvent& event) { return std::isfinite(event.time) ? event.time : 0; });
  return run;
}

}  // namespace lockstep::launch
