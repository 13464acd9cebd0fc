#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/trackers.hpp"

namespace lockstep {

/// The trackers of one of the trainings that share an Accelerator: see Tracking::init_run_trackers().
/// *Local*.
class RunTrackers {
 public:
  ~RunTrackers();
  RunTrackers(const RunTrackers&) = delete;
  RunTrackers& operator=(const RunTrackers&) = delete;

  /// Until they are closed: by close(), by the next training's, or with all others.
  bool is_open() const noexcept;
  /// Ends the run and closes its trackers, and no others. Throws Error if writing fails.
  void close();

 private:
  friend class Tracking;
  struct Impl;
  explicit RunTrackers(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The part of Accelerator that logs the values of a run; programs use it through an Accelerator. Only rank 0
/// writes; calls of other ranks do nothing. Everything is *Local*, and throws Error if writing fails.
///
///     accelerator.init_trackers({.log_with = {"tensorboard", "jsonl"}, .folder = "runs/7"}, {{"lr", 1e-3}});
///     accelerator.log({{"loss", loss}, {"lr", scheduler.last_lr()[0]}}, step);
///     accelerator.end_training();
class Tracking {
 public:
  /// `writes`: whether this process logs.
  explicit Tracking(bool writes);

  /// Opens the trackers and logs the hyper-parameters. If a checkpoint was loaded, or is loaded later, they
  /// continue after its step.
  void init_trackers(const TrackerOptions& options, const HyperParameters& parameters = {},
                     const std::vector<std::string>& metrics = {});
  /// The same for one of several trainings, whose trackers are its own: they get what is logged until the
  /// result is destroyed, or the next call of this function, which closes them.
  std::shared_ptr<RunTrackers> init_run_trackers(const TrackerOptions& options,
                                                 const HyperParameters& parameters = {});
  /// Adds a tracker of the program. Calls of ranks other than 0 have no effect.
  void add_tracker(std::unique_ptr<Tracker> tracker);

  /// Logs the values of a step. Count steps from 1 in optimizer steps, so that a checkpoint's step matches:
  /// see Tracker::log.
  void log(const LogValues& values, std::int64_t step) const;
  /// Logs a text, such as a sample that the model generated.
  void log_text(const std::string& name, const std::string& text, std::int64_t step) const;
  /// Logs the distribution of a tensor's elements: any dtype that converts to float64, copied from any
  /// device.
  void log_histogram(const std::string& name, const at::Tensor& tensor, std::int64_t step) const;

  /// Ends the run and closes the trackers. Trackers that are opened later keep existing files.
  void end_training();

 protected:
  /// Called when a checkpoint of this step was loaded.
  void trackers_resume_at(std::int64_t step);

 private:
  friend class RunTrackers;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
