#pragma once

#include <cstdint>
#include <map>
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

}  // namespace lockstep
