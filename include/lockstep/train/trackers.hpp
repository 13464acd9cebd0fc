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

/// Numbers of a step by name, in the order in which they are to appear: {{"loss", 0.7}, {"lr", 1e-3}}.
using LogValues = std::vector<std::pair<std::string, double>>;

/// What a run was started with, by name: a flag, a whole number, a number or a text. Whole numbers are kept
/// as such in JSON; TensorBoard knows numbers of one kind only.
using HyperParameter = std::variant<bool, std::int64_t, double, std::string>;
using HyperParameters = std::map<std::string, HyperParameter>;

/// How values are spread: how many lie below each limit and not below the one before.
struct Histogram {
  /// Of the finite values: the ends, how many there are, their sum and the sum of their squares.
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  /// Upper ends, ascending. The first bucket is empty: its limit is the lower end of the second.
  std::vector<double> limits = {};
  /// As many as limits. Values below the first or above the last of TensorBoard's buckets are in none, though
  /// they are in `count`.
  std::vector<double> counts = {};
};

/// The histogram of `values` with TensorBoard's buckets, which grow by a tenth from 1e-12 to 1e20 on both
/// sides of zero: the numbers of torch.utils.tensorboard's make_histogram. Values that are not finite are
/// left out; without any other the histogram is empty. *Local*.
Histogram histogram_of(std::span<const double> values);

/// Where the numbers of a run go: a file of JSON lines, a table, TensorBoard. Programs derive from it for a
/// service of their own. One process uses one tracker; one thread at a time. Every method is *Local*, and
/// throws Error with the system's reason where writing fails.
class Tracker {
 public:
  Tracker() = default;
  virtual ~Tracker() = default;
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  /// The values of a step, in the order given. A step may be logged in several calls, with different names;
  /// numbers need not be finite. What was logged stays even when the process is killed right afterwards.
  virtual void log(const LogValues& values, std::int64_t step) = 0;
  /// A text, such as a sample that the model wrote.
  virtual void log_text(const std::string& name, const std::string& text, std::int64_t step) = 0;
  /// How the elements of a tensor are spread at a step: see histogram_of.
  virtual void log_histogram(const std::string& name, const Histogram& histogram, std::int64_t step) = 0;
  /// To be called once, before log(). The run's hyper-parameters, and the names under which log() gives the
  /// results that they are to be judged by.
  virtual void log_hyperparameters(const HyperParameters& parameters,
                                   const std::vector<std::string>& metrics) = 0;

  /// The training goes on from a checkpoint of this step: what an earlier process logged for later steps is
  /// not part of the run any more. To be called before anything is logged.
  virtual void resume_at(std::int64_t step) = 0;

  /// The run has come to its end, and well: nothing is logged afterwards. A run that died never says so,
  /// which is how TensorBoard's list of runs tells them apart.
  virtual void finish() {}
};

/// One JSON object a line in `folder`/metrics.jsonl:
///
///     {"step":10,"time":1790000000.25,"loss":0.7}
///     {"step":10,"time":1790000000.5,"text":{"sample":"once upon a time"}}
///
/// `time` is in seconds since 1970. A number that is not finite is the text "nan", "inf" or "-inf". Other
/// keys of a line are "hyperparameters" and "histogram". The value names "step" and "time" are taken.
///
/// A file that is there is continued: a half line at its end, which a kill may leave, is dropped. Throws
/// Error where it cannot be opened; log() throws UsageError for the two names. *Local*.
std::unique_ptr<Tracker> make_json_lines_tracker(const std::filesystem::path& folder);

/// A table in `folder`/metrics.csv (RFC 4180): a line for each call of log(), and a column for each name,
/// after the columns step and time. A name that is new adds a column: then the file is written anew. Texts,
/// histograms and hyper-parameters have no place in it and are passed over.
///
/// Numbers are written as short as they can be and read back the same; an absent one is an empty field, and
/// one that is not finite "nan", "inf" or "-inf". Line ends in names become blanks, so that a line is a row.
/// A file that is there is continued, as above. Throws Error where it cannot be opened or is no table of this
/// kind. *Local*.
std::unique_ptr<Tracker> make_csv_tracker(const std::filesystem::path& folder);

/// TensorBoard's event files `folder`/events.out.tfevents.*: scalars, texts, histograms and
/// hyper-parameters, byte for byte the events of torch.utils.tensorboard.SummaryWriter. Each process that
/// goes on begins a file of its own, which tells TensorBoard to drop the steps that are done again.
///
/// The format is TensorFlow's records (a length, the bytes, masked CRC-32Cs) of its Event messages. A flag
/// among the hyper-parameters is a flag, where torch writes 0 or 1. Throws Error where it cannot be opened.
/// *Local*.
std::unique_ptr<Tracker> make_tensorboard_tracker(const std::filesystem::path& folder);

struct TrackerOptions {
  /// Any of "jsonl", "csv" and "tensorboard".
  std::vector<std::string> log_with = {};
  /// Where their files go; made where needed. A folder of its own for each run: what is there already is
  /// continued.
  std::filesystem::path folder = "runs";
  /// What their files hold of later steps is dropped, because it is done again. Nothing: all stays, but for
  /// what a loaded checkpoint says.
  std::optional<std::int64_t> resume_at = {};
};

/// Gives everything to each of several trackers, in their order; what one throws comes out, and those after
/// it have not been called then. *Local*.
class Trackers final : public Tracker {
 public:
  Trackers() = default;
  /// Opens what the options name. Throws UsageError for a name that is unknown, Error when a file cannot be
  /// opened.
  explicit Trackers(const TrackerOptions& options);

  /// Takes one over, as the last in order; not null.
  void add(std::unique_ptr<Tracker> tracker) { trackers_.push_back(std::move(tracker)); }

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
