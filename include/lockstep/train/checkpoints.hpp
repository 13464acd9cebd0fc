#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

struct CheckpointOptions {
  /// Where checkpoints are kept, as `checkpoint-<step>`. Empty: there are none, and nothing here does
  /// anything.
  std::string folder = {};
  /// A checkpoint after each this many steps; 0: only when the job is stopped, and where the program asks.
  std::int64_t every = 0;
  /// How many of the newest are kept; 0: all. Two, so that there is one to go back to when the newest is
  /// damaged.
  std::int64_t keep_last = 2;
  /// Beside these: so many of the best by the metric given to save(), where lower is better, or higher.
  std::int64_t keep_best = 0;
  bool greater_is_better = false;
  /// Beside these: those of steps that are a multiple of this; 0: none for that reason.
  std::int64_t keep_every = 0;
  /// No more than so many all told; the newest one and the one that protect() names always stay. 0: the rules
  /// above alone.
  std::int64_t total_limit = 0;
  /// Adds files of the program's own to each checkpoint: called on every rank when one begins, it returns
  /// what SaveStateOptions::add_files shall be, with what is to be written inside.
  std::function<std::function<void(const std::filesystem::path&)>()> add_files = {};
  /// Write in a thread of rank 0, while training goes on: see SaveStateOptions::asynchronous. An error comes
  /// out at the next checkpoint. When the job is told to stop, it waits until the last one is in place.
  bool asynchronous = false;
  /// For a `folder` on local disks: see SaveStateOptions::save_on_each_node.
  bool save_on_each_node = false;
  /// "auto": from the newest whole checkpoint in `folder`; from the beginning where there is none; an error
  /// where all of them are damaged. "never": from the beginning. Else the path of a checkpoint to begin with:
  /// used until there are newer ones in `folder` that come from it, so that the same command line serves for
  /// each restart.
  std::string resume = "auto";
  /// Stop with a checkpoint at SIGTERM as well, not only at SIGUSR1.
  bool stop_at_sigterm = true;
  /// Go on training after a checkpoint could not be written, and try again at the next: for full disks.
  bool continue_after_failed_save = false;
};

/// Writes checkpoints in a training loop, goes on from them, and stops in good order when it is told to.
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
/// While it lives, with a folder, SIGUSR1 and SIGTERM to any rank do not end the process: all ranks stop
/// after the same step with a checkpoint. Rank 0 holds the folder's lock, so that no second job writes there.
/// Objects are prepared and registered before resume(). One thread at a time; *Collective* methods are called
/// by every rank. Not copied; can be moved.
class Checkpoints {
 public:
  /// Takes the folder, clears away what killed jobs left half written there, and listens to the signals.
  /// *Collective*. Throws UsageError (RemoteError on other ranks) when another job uses the folder, or an
  /// option is out of range; Error when the folder cannot be written.
  Checkpoints(const Accelerator& accelerator, CheckpointOptions options);
  ~Checkpoints();
  Checkpoints(Checkpoints&&) noexcept;
  Checkpoints& operator=(Checkpoints&&) noexcept;

  /// Goes where `options.resume` says, and prints where that is; nothing where a run begins. Damaged
  /// checkpoints are passed over, and named on standard error. *Collective*. Throws as
  /// Accelerator::load_state does; DataError when `resume` names a checkpoint that is missing or damaged, and
  /// for "auto" when all are damaged.
  void resume();

  /// To be called after every optimizer step: counts it, and writes a checkpoint when one is due. True when
  /// the job was asked to stop: then there is a checkpoint of this very step, and the program should end with
  /// kPreemptedExitCode. *Collective*. Throws as Accelerator::save_state and should_stop do.
  bool after_step();
  /// The first half of it: counts the step, and nothing else. For programs that decide for themselves when to
  /// save, and ask Accelerator::should_stop(). *Local*.
  void count_step() noexcept;

  /// The checkpoint of this name ("checkpoint-20") stays whatever total_limit says; empty: none does.
  /// *Local*, rank 0's word counts.
  void protect(const std::string& name);

  /// The checkpoint that resume() went to; empty for a run from scratch. *Local*.
  const std::filesystem::path& resumed_from() const noexcept;

  /// Writes a checkpoint now, unless this step has one already. *Collective*.
  void save();
  /// Writes one in any case; one of this step, from before something else changed, is replaced. *Collective*.
  void save_again();
  /// Writes one with a metric, for `keep_best`; one of this step is replaced. All ranks give the same metric.
  /// *Collective*.
  void save(double metric);

  /// Returns when no checkpoint is being written any more. *Collective*. Throws what writing it threw.
  void wait();

  /// Steps done since the beginning of the training, over all restarts.
  std::int64_t step() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
