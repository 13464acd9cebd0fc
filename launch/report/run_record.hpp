#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "report/run_log.hpp"

namespace lockstep::launch {

/// The values of one name, and the source they were taken from.
struct LoggedSeries {
  std::vector<LoggedPoint> points;
  std::string source;
};

/// Something that happened to a run once.
struct RunEvent {
  enum class Kind { restart, recovery, failure, checkpoint };
  Kind kind = Kind::checkpoint;
  /// kUnknown if no file says.
  double step = kUnknown;
  double time = kUnknown;
  std::string text;
};

/// Seconds that a rank spent on something.
struct TimeShare {
  std::string what;
  double seconds = 0;
};

/// How a rank, or the run as a whole, spent its time.
struct SpentTime {
  /// "rank 0", or "all ranks".
  std::string who;
  double seconds = 0;
  std::vector<TimeShare> shares;
};

/// An operator in the profiler's traces.
struct OperatorTime {
  std::string name;
  double calls = 0;
  /// Without the operators that it called.
  double seconds = 0;
};

/// The most memory that a rank had, in MiB; kUnknown if it is not recorded.
struct RankMemory {
  int rank = 0;
  double host_mib = kUnknown;
  double device_mib = kUnknown;
};

/// What the files of a training's folder say of it. A plain value.
struct RunRecord {
  std::string name;
  std::filesystem::path folder;

  /// By the names of trainer_state.json ("loss", "eval_accuracy"); at least one point each.
  std::map<std::string, LoggedSeries, std::less<>> series;
  /// The first and the last time at which something was logged at a step, in ascending order.
  struct StepTime {
    double step = 0;
    double first = 0;
    double last = 0;
  };
  std::vector<StepTime> clock;

  // Of trainer_state.json.
  std::optional<double> global_step, max_steps, num_train_epochs, epoch, samples_seen, samples_per_step,
      train_seconds, best_metric, best_step;

  /// 0: unknown.
  int world_size = 0;
  std::string lockstep_version, libtorch_version;
  /// The checkpoint from which the run started; empty: from the beginning, or unknown.
  std::string started_from;
  std::set<std::string> hosts;
  /// Names and values of each host's hardware, in their order, as its ranks recorded them.
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> hardware;
  std::vector<RankMemory> memory;
  /// Whether the files say that the training has ended by itself.
  bool has_ended = false;
  /// When a file of it was changed last; kUnknown if none was found.
  double last_change = kUnknown;

  std::map<std::string, std::string> arguments;
  std::string arguments_source;
  std::vector<RunEvent> events;

  std::vector<SpentTime> spent;
  /// What `spent` covers and where it comes from, as sentences.
  std::string spent_note;
  /// The longest ones; `operators_seconds` is the time of all.
  std::vector<OperatorTime> operators;
  double operators_seconds = 0;
  std::string operators_note;

  /// Files that were read, and sentences on what could not be.
  std::vector<std::string> sources, problems;

  /// The points of a name; empty if nothing was logged by it. *Local*.
  const std::vector<LoggedPoint>& points_of(std::string_view of) const;
};

}  // namespace lockstep::launch
