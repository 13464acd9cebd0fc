#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/trackers.hpp"

namespace lockstep {

/// The part of Accelerator that logs the numbers of a run; a program uses it through an Accelerator. Rank 0
/// alone writes: the other ranks' calls do nothing. Everything is *Local*, and throws Error where writing
/// fails.
///
///     accelerator.init_trackers({.log_with = {"tensorboard", "jsonl"}, .folder = "runs/7"}, {{"lr", 1e-3}});
///     accelerator.log({{"loss", loss}, {"lr", scheduler.last_lr()[0]}}, step);
///     accelerator.end_training();
class Tracking {
 public:
  /// `writes`: this process is the one that logs.
  explicit Tracking(bool writes);

  /// Opens the trackers, and gives them the hyper-parameters. When a checkpoint was loaded, now or later,
  /// they go on after its step.
  void init_trackers(const TrackerOptions& options, const HyperParameters& parameters = {},
                     const std::vector<std::string>& metrics = {});
  /// One of the program's own; made on rank 0 alone.
  void add_tracker(std::unique_ptr<Tracker> tracker);

  /// The values of a step, counted from 1 in optimizer steps, so that a checkpoint's step fits: see
  /// Tracker::log.
  void log(const LogValues& values, std::int64_t step) const;
  /// A text, such as a sample that the model wrote.
  void log_text(const std::string& name, const std::string& text, std::int64_t step) const;
  /// How the elements of a tensor are spread: any dtype that converts to float64, on any device, from which
  /// it is copied.
  void log_histogram(const std::string& name, const at::Tensor& tensor, std::int64_t step) const;

  /// The run has come to its end: trackers are closed. Those that are opened later keep what is there.
  void end_training();

 protected:
  /// A checkpoint of this step was loaded.
  void trackers_resume_at(std::int64_t step);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
