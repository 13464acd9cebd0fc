#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

namespace train {
class ElasticRun;
}

/// Where a training that survives lost ranks is. Given to the body of run_elastic(), and valid only there.
/// *Local*; one thread.
class ElasticState {
 public:
  /// The step is complete: all prepared optimizers and schedulers have stepped. Call it right after them,
  /// before anything else that communicates (logging, evaluation, checkpoints). Without an optimizer step
  /// since the last call it does nothing, so it may be called after each micro-batch.
  /// Checkpoints::after_step() calls it. Sends nothing. Without recoveries it only counts the steps.
  void commit();
  /// From now on lost ranks are not replaced, because of what the program has found in itself, which `why`
  /// says: rank 0 prints it, and the launcher names it at the next loss. To be called on every rank.
  void refuse_recoveries(const std::string& why) {
    if (refuse_) refuse_(why);
  }
  /// How many steps the state contains: those before a resumed checkpoint too.
  std::uint64_t step() const noexcept { return step_; }
  /// 1, and one more after each recovery.
  std::uint64_t generation() const noexcept { return generation_; }
  /// Whether the step under way may have been computed before, by this process or a lost one: what it prints
  /// or writes may already be there, with the same values.
  bool repeats() const noexcept { return repeats_; }

 private:
  friend class train::ElasticRun;
  ElasticState() = default;

  std::function<void()> commit_;
  std::function<void(const std::string& why)> refuse_;
  std::uint64_t step_ = 0;
  std::uint64_t generation_ = 1;
  bool repeats_ = false;
};

/// Whether this process was started by a launcher that replaces lost ranks: `lockstep run --max-recoveries`.
/// *Local*.
bool is_elastic();

/// Runs a training loop that survives the loss of ranks: see run_elastic().
void run_elastic_loop(const Accelerator& accelerator, const std::function<void(ElasticState& state)>& body);

/// Runs `body`, a training loop, and returns what it returns. If a rank is lost (killed, crashed, ended, an
/// exception of its own) and the job was started by `lockstep run --max-recoveries N`, the launcher starts
/// one process in its place, while all others keep theirs: their bodies are left by the CommunicationError of
/// an operation and entered again, with the same state on all ranks and with the loaders where they were, at
/// most one step earlier. All results have the bits of the undisturbed job, which uses run_elastic() as well:
///
///     auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);
///     lockstep::run_elastic(accelerator, [&](lockstep::ElasticState& state) {
///       while (batches.epoch() < epochs) {
///         for (auto& batch : batches) {
///           accelerator.backward(loss_of(ddp, batch));
///           opt.step();
///           opt.zero_grad();
///           state.commit();
///         }
///       }
///     });
///
/// The body must find its place by the loaders and the state, as after a resumed checkpoint, and must let
/// CommunicationErrors pass. A recovery also takes back what schedulers, loaders and buffers did after the
/// last commit, as at the end of an epoch: the body does it again. Before it, the program prepares all
/// objects, without other collectives than those of prepare(), Checkpoints, load_latest_state() and
/// wait_for_everyone(): a new process passes through them alone, and gets a UsageError from any other. Each
/// step seeds the generators anew, from the seed that the program gave rank 0's CPU generator.
///
/// A UsageError or DataError ends the job, as does the third loss in a row without a new step, or one in
/// which no rank is left that holds a whole state. Recoveries are off, and losses do what they do without
/// them, for one rank, GPUs, sharded models and optimizers, streams, hooks with a memory of their own, a
/// second call in one process, and other launchers; rank 0 prints the reason if recoveries were asked for.
/// Without them `body` is called once. *Collective*. docs/reliability.md says what is covered.
template <class Body>
auto run_elastic(const Accelerator& accelerator, Body&& body) {
  using Result = std::invoke_result_t<Body&, ElasticState&>;
  if constexpr (std::is_void_v<Result>) {
    run_elastic_loop(accelerator, [&](ElasticState& state) { body(state); });
  } else {
    std::optional<Result> result;
    run_elastic_loop(accelerator, [&](ElasticState& state) { result.emplace(body(state)); });
    return std::move(*result);
  }
}

}  // namespace lockstep
