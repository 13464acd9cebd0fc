#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// A number that no file gives.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// One logged number. `value` may be NaN or infinite; `time` is in seconds since 1970, or kUnknown.
struct LoggedPoint {
  double step = 0;
  double value = 0;
  double time = kUnknown;
};

/// A start of the training: the last step that was done before, 0 for one from the beginning, and its time.
struct LoggedStart {
  double step = 0;
  double time = kUnknown;
};

/// What one source says of a run: a tracker's files, or the history in trainer_state.json. All members are
/// *Local*.
class RunLog {
 public:
  /// `source` names it for the user: "runs/metrics.jsonl".
  explicit RunLog(std::string source) : source_(std::move(source)) {}
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  RunLog(RunLog&&) = default;
  RunLog& operator=(RunLog&&) = default;

  /// Adds a value by the name that the source uses. A step before the last one of that name means that the
  /// training went back: later values are dropped, as their steps are repeated.
  void add(std::string_view name, const LoggedPoint& point);
  /// Drops the values of steps after `step`.
  void go_back_to(double step);
  void add_start(const LoggedStart& start) { starts_.push_back(start); }
  void add_parameter(const std::string& name, const std::string& value) { parameters_[name] = value; }
  /// Something that could not be read, as a sentence that names the file.
  void add_problem(std::string text) { problems_.push_back(std::move(text)); }

  const std::string& source() const { return source_; }
  /// By the names of trainer_state.json, in the order of their steps.
  const std::map<std::string, std::vector<LoggedPoint>>& series() const { return series_; }
  /// Hands them over: the log has none afterwards.
  std::map<std::string, std::vector<LoggedPoint>> take_series();
  const std::vector<LoggedStart>& starts() const { return starts_; }
  const std::map<std::string, std::string>& parameters() const { return parameters_; }
  /// Also says what was left out because it was too much.
  std::vector<std::string> problems() const;

 private:
  using Series = std::map<std::string, std::vector<LoggedPoint>>;

  /// Null: there are too many names.
  Series::value_type* series_of(std::string_view name);

  std::string source_;
  Series series_;
  /// The names that were added last, as the source has them: it repeats them in the same order.
  std::vector<std::pair<std::string, Series::value_type*>> known_;
  std::size_t next_known_ = 0;
  std::vector<LoggedStart> starts_;
  std::map<std::string, std::string> parameters_;
  std::vector<std::string> problems_;
  std::size_t points_ = 0;
  std::size_t left_out_ = 0;
};

/// The name in trainer_state.json of a tracker's value: "loss" for "train/loss", "eval_accuracy" for
/// "eval/accuracy"; other names stay. *Local*.
std::string state_name_of(std::string_view tracked);

}  // namespace lockstep::launch
