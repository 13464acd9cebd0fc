#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/elastic/recovery_plan.hpp"
#include "lockstep/train/accelerator.hpp"
#include "train/elastic/kept_state.hpp"
#include "train/elastic/update_watch.hpp"

namespace lockstep::train {

/// A training whose step can be undone on this rank, and whose state can come from any other: what a job
/// needs to go on after a failure with the results of an undisturbed run.
///
///     ElasticTraining training(accelerator, seed);  // all is prepared
///     training.begin();
///     for (auto& batch : batches) {
///       ...                                // a step: forwards, backwards, optimizers, schedulers
///       training.commit();                 // before anything else that communicates
///     }
///
/// A rank's state is *clean* between two commits until the first optimizer steps, and *torn* from there to
/// the commit. Each step has an all-reduce to which all ranks contribute, so the clean states of any two
/// ranks are at most one step apart, and no message is needed to agree on a step: without a failure, commit()
/// sends nothing. After a failure, recover() undoes the step that was under way, and the ranks with an older
/// state, or with none, receive the newest clean one.
///
/// *Collective* where stated, otherwise *Local*; one thread.
class ElasticTraining {
 public:
  /// `seed`: of the job's random numbers; the same on all ranks.
  ElasticTraining(const Accelerator& accelerator, std::uint64_t seed)
      : accelerator_(accelerator), seed_(seed), updates_(accelerator) {}

  /// The training begins, or goes on from a checkpoint, after `step` steps.
  void begin(std::uint64_t step = 0);
  /// All prepared optimizers and schedulers have stepped, and the next step begins.
  void commit();
  /// How many steps the state contains.
  std::uint64_t step() const noexcept { return step_; }

  /// After an error, outside of the step: forms the group again (see ProcessGroup::reform), and gives all
  /// ranks the newest state. The step that was under way is computed again. *Collective*, with join() of the
  /// processes that replace lost ones. Throws Error if no rank holds a whole state; then nothing is undone on
  /// a rank whose state is torn.
  void recover(std::uint64_t generation = 0);
  /// In a process that replaces a lost one, when all is prepared: forms the group with the others, and
  /// receives the state. *Collective*.
  void join();

  // ---- The parts of recover() and join(), for who knows already whose state it is.

  /// See KeptState. *Local*.
  std::string moved_back() const { return kept_ ? kept_->moved_back() : ""; }
  /// What this rank holds. *Local*.
  elastic::HeldState held() const;
  /// Puts back what the step has changed before its optimizers. *Local*; held() must be clean.
  void undo_step();
  /// The group is formed again: all ranks get the state of rank `source`, which contains `step` steps, if any
  /// `receives`; the step after it begins. *Collective*.
  void take_state_of(int source, std::uint64_t step, bool any_receives);

 private:
  void exchange(elastic::HeldState own);

  Accelerator accelerator_;
  std::uint64_t seed_;
  std::uint64_t step_ = 0;
  UpdateWatch updates_;  // Since the last commit.
  std::optional<KeptState> kept_;
};

/// The rank whose state all ranks get: the first with the newest clean one. Throws Error, which says what the
/// ranks hold, if there is none or if clean states are more than a step apart. *Local*.
int choose_source(const std::vector<elastic::HeldState>& held);

}  // namespace lockstep::train
