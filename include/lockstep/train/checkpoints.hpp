#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

struct CheckpointOptions {
  /// Folder of the checkpoints, which are named `checkpoint-<step>`. Empty: no checkpoints; nothing below has
  /// an effect.
  std::string folder = {};
  /// A checkpoint every so many steps. 0: only when the job is stopped or the program requests one.
  std::int64_t every = 0;
  /// How many of the newest are kept; 0: all. The default is two, so that one is left when the newest is
  /// damaged.
  std::int64_t keep_last = 2;
  /// In addition, this many of the best by the metric passed to save(); lower is better unless
  /// greater_is_better is set.
  std::int64_t keep_best = 0;
  bool greater_is_better = false;
  /// In addition, those of steps that are a multiple of this; 0: none.
  std::int64_t keep_every = 0;
  /// At most this many in total; the newest one and the one named by protect() are always kept. 0: no limit.
  std::int64_t total_limit = 0;
  /// Adds files of the program to each checkpoint. Called on every rank when a checkpoint begins; returns the
  /// function for SaveStateOptions::add_files, which must own the data to be written.
  std::function<std::function<void(const std::filesystem::path&)>()> add_files = {};
  /// Write in a thread of rank 0 while training continues: see SaveStateOptions::asynchronous. An error is
  /// thrown at the next checkpoint. When the job is stopped, it waits until the last checkpoint is complete.
  bool asynchronous = false;
  /// If `folder` is on local disks: see SaveStateOptions::save_on_each_node.
  bool save_on_each_node = false;
  /// Without the frozen weights of models: see SaveStateOptions::trained_only.
  std::optional<bool> trained_only = std::nullopt;
  /// "auto": resume from the newest complete checkpoint in `folder`; start from the beginning if there is
  /// none; an error if all of them are damaged. "never": start from the beginning. Otherwise the path of a
  /// checkpoint to start from: it is used until `folder` contains newer ones that were started from it, so
  /// that the same command line works for each restart.
  std::string resume = "auto";
  /// SIGTERM also stops the job with a checkpoint, not only SIGUSR1.
  bool stop_at_sigterm = true;
  /// Continue training if a checkpoint could not be written, and try again at the next one: for full disks.
  bool continue_after_failed_save = false;
};

/// Writes checkpoints in a training loop, resumes from them, and stops cleanly on request.
///
///     auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
///     lockstep::Checkpoints checkpoints(accelerator, {.folder = "run/checkpoints", .every = 100});
///     checkpoints.resume();
///     while (batches.epoch() < epochs) {
///       for (auto& batch : batches) {
///         step(batch);
///         if (checkpoints.after_step()) return lockstep::kPreemptedExitCode;
///       }
///     }
///
/// While it exists, with a folder, SIGUSR1 (and, by default, SIGTERM) to any rank does not end the process:
/// all ranks stop after the same step with a checkpoint. Rank 0 holds the folder's lease, so that no other
/// job writes there. Prepare and register objects before resume(). One thread at a time; every rank must call
/// *Collective* methods. Movable, not copyable.
class Checkpoints {
 public:
  /// Acquires the folder, removes incomplete checkpoints of killed jobs, and installs the signal handlers.
  /// *Collective*. Throws UsageError (RemoteError on other ranks) if another job uses the folder or an option
  /// is out of range; Error if the folder cannot be written.
  Checkpoints(const Accelerator& accelerator, CheckpointOptions options);
  ~Checkpoints();
  Checkpoints(Checkpoints&&) noexcept;
  Checkpoints& operator=(Checkpoints&&) noexcept;

  /// Resumes as `options.resume` says, and prints the checkpoint; prints nothing if the run starts from the
  /// beginning. Damaged checkpoints are skipped and named on standard error. *Collective*. Throws as
  /// Accelerator::load_state does; DataError if `resume` names a checkpoint that is missing or damaged, and
  /// for "auto" if all are damaged.
  void resume();

  /// Call it after every optimizer step: counts the step, and writes a checkpoint when one is due. Returns
  /// true if the job was asked to stop: then a checkpoint of this step exists, and the program should end
  /// with kPreemptedExitCode. *Collective*. Throws as Accelerator::save_state and should_stop do.
  bool after_step();
  /// Counts the step and does nothing else: for programs that decide themselves when to save, and that call
  /// Accelerator::should_stop(). *Local*.
  void count_step() noexcept;

  /// The checkpoint of this name ("checkpoint-20") is kept whatever total_limit says; empty: none. *Local*;
  /// rank 0's call counts.
  void protect(const std::string& name);

  /// The checkpoint from which resume() resumed; empty if the run started from the beginning. *Local*.
  const std::filesystem::path& resumed_from() const noexcept;

  /// Writes a checkpoint now, unless this step has one already. *Collective*.
  void save();
  /// Writes one in any case; replaces one of this step. *Collective*.
  void save_again();
  /// Writes one with a metric, for `keep_best`; replaces one of this step. All ranks pass the same metric.
  /// *Collective*.
  void save(double metric);

  /// Returns when no checkpoint is being written. *Collective*. Throws the exception of the write.
  void wait();

  /// Steps done since the beginning of the training, over all restarts.
  std::int64_t step() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
