#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

/// Values of a step by name, in the order in which they appear: {{"loss", 0.7}, {"lr", 1e-3}}.
using LogValues = std::vector<std::pair<std::string, double>>;

/// A hyper-parameter of a run: a flag, an integer, a number or a text. JSON keeps integers as such;
/// TensorBoard has only one kind of number.
using HyperParameter = std::variant<bool, std::int64_t, double, std::string>;
using HyperParameters = std::map<std::string, HyperParameter>;

/// A distribution: how many values are below each limit and not below the previous one.
struct Histogram {
  /// Of the finite values: minimum, maximum, number, sum, and sum of squares.
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  /// Upper bounds, ascending. The first bucket is empty: its limit is the lower bound of the second.
  std::vector<double> limits = {};
  /// As many as limits. Values below the first or above the last of TensorBoard's buckets are in none, but
  /// are included in `count`.
  std::vector<double> counts = {};
};

/// The histogram of `values` with TensorBoard's buckets, which grow by a tenth from 1e-12 to 1e20 on both
/// sides of zero: the numbers of torch.utils.tensorboard's make_histogram. Values that are not finite are
/// left out; if there are no others, the histogram is empty. *Local*.
Histogram histogram_of(std::span<const double> values);

/// A destination of logged values: a file of JSON lines, a table, TensorBoard. Derive from it for another
/// service. One process uses one tracker; one thread at a time. Every method is *Local*, and throws Error
/// with the system's reason if writing fails.
class Tracker {
 public:
  Tracker() = default;
  virtual ~Tracker() = default;
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  /// Logs the values of a step, in the given order. A step may be logged in several calls, with different
  /// names; values need not be finite. Nothing logged is lost even if the process is killed right afterwards.
  virtual void log(const LogValues& values, std::int64_t step) = 0;
  /// Logs a text, such as a sample that the model generated.
  virtual void log_text(const std::string& name, const std::string& text, std::int64_t step) = 0;
  /// Logs the distribution of a tensor's elements at a step: see histogram_of.
  virtual void log_histogram(const std::string& name, const Histogram& histogram, std::int64_t step) = 0;
  /// Call it once, before log(): the run's hyper-parameters, and the names of the logged metrics by which
  /// runs are compared.
  virtual void log_hyperparameters(const HyperParameters& parameters,
                                   const std::vector<std::string>& metrics) = 0;

  /// The training was resumed from a checkpoint of this step: values that an earlier process logged for later
  /// steps are no longer part of the run. Call it before anything is logged.
  virtual void resume_at(std::int64_t step) = 0;

  /// The run ended successfully: nothing is logged afterwards. A run that died does not call it, so that
  /// TensorBoard's list of runs can distinguish them.
  virtual void finish() {}
};

/// Writes one JSON object per line to `folder`/metrics.jsonl:
///
///     {"step":10,"time":1790000000.25,"loss":0.7}
///     {"step":10,"time":1790000000.5,"text":{"sample":"once upon a time"}}
///
/// `time` is in seconds since 1970. A number that is not finite is the text "nan", "inf" or "-inf". Other
/// keys of a line are "hyperparameters" and "histogram". The value names "step" and "time" are reserved.
///
/// An existing file is continued; an incomplete line at its end, which a kill may leave, is dropped. Throws
/// Error if the file cannot be opened; log() throws UsageError for the two names. *Local*.
std::unique_ptr<Tracker> make_json_lines_tracker(const std::filesystem::path& folder);

/// Writes a table to `folder`/metrics.csv (RFC 4180): a line per call of log(), and a column per name, after
/// the columns step and time. A new name adds a column; the file is then rewritten. Texts, histograms and
/// hyper-parameters are ignored.
///
/// Numbers are written in the shortest form that reads back the same. A missing value is an empty field, and
/// one that is not finite "nan", "inf" or "-inf". Line ends in names become spaces, so that a line is a row.
/// An existing file is continued, as above. Throws Error if it cannot be opened or is not a table of this
/// kind. *Local*.
std::unique_ptr<Tracker> make_csv_tracker(const std::filesystem::path& folder);

/// Writes TensorBoard's event files `folder`/events.out.tfevents.*: scalars, texts, histograms and
/// hyper-parameters, byte for byte the events of torch.utils.tensorboard.SummaryWriter. Each resumed process
/// starts its own file, which tells TensorBoard to drop the steps that are repeated.
///
/// The format is TensorFlow's records (a length, the bytes, masked CRC-32Cs) of its Event messages. A flag
/// among the hyper-parameters is written as a flag, whereas torch writes 0 or 1. Throws Error if the file
/// cannot be opened. *Local*.
std::unique_ptr<Tracker> make_tensorboard_tracker(const std::filesystem::path& folder);

struct TrackerOptions {
  /// Any of "jsonl", "csv", "tensorboard" and "mlflow" (see mlflow_tracker.hpp).
  std::vector<std::string> log_with = {};
  /// Folder of their files; created if needed. Use one folder per run: existing files are continued.
  std::filesystem::path folder = "runs";
  /// Values of later steps in existing files are dropped, because these steps are repeated. Unset: all are
  /// kept, unless a checkpoint is loaded.
  std::optional<std::int64_t> resume_at = {};
};

/// Forwards everything to each of several trackers, in their order. If one throws, the exception is
/// propagated and those after it are not called. *Local*.
class Trackers final : public Tracker {
 public:
  Trackers() = default;
  /// Opens the trackers that the options name. Throws UsageError if a name is unknown, Error if a file cannot
  /// be opened.
  explicit Trackers(const TrackerOptions& options);

  /// Takes ownership of a tracker and appends it; not null.
  void add(std::unique_ptr<Tracker> tracker) { trackers_.push_back(std::move(tracker)); }
  /// Takes the tracker out of the list; null if it is not in it.
  std::unique_ptr<Tracker> remove(const Tracker* tracker);

  void log(const LogValues& values, std::int64_t step) override;
  void log_text(const std::string& name, const std::string& text, std::int64_t step) override;
  void log_histogram(const std::string& name, const Histogram& histogram, std::int64_t step) override;
  void log_hyperparameters(const HyperParameters& parameters,
                           const std::vector<std::string>& metrics) override;
  void resume_at(std::int64_t step) override;
  void finish() override;

 private:
  std::vector<std::unique_ptr<Tracker>> trackers_;
};

}  // namespace lockstep
