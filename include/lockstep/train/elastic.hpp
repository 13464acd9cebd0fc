#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/train/accelerator.hpp"

namespace lockstep {

namespace train {
class ElasticRun;
}

/// What a recovery has changed.
struct GroupChange {
  /// Of the group that trains from now on; the first one is 1.
  std::uint64_t generation = 1;
  /// The ranks that have another process now, ascending; none if a connection broke and nobody was lost.
  std::vector<int> replaced = {};
  /// How many steps the state of all ranks contains: the training goes on after it.
  std::uint64_t step = 0;
};

/// The state of a training that survives lost ranks, and where the training is. One thread. *Local* where
/// nothing else is said.
///
/// A program with an Accelerator needs none: run_elastic(accelerator, body) makes it. A plain loop, with a
/// ProcessGroup, a DistributedDataParallel and optimizers that step by themselves, names what belongs to its
/// state: everything that a checkpoint of it would contain, and its loaders. In the same order on all ranks.
///
///     lockstep::ElasticState state(world, group);
///     state.add(ddp);
///     state.add(optimizer);
///     state.add(loader);
///     lockstep::run_elastic(state, [&] {
///       while (loader.epoch() < epochs) {
///         for (auto& batch : loader) {
///           loss_of(ddp, batch).backward();
///           optimizer.step();
///           ddp.zero_grad();
///           state.commit();
///         }
///       }
///     });
///
/// A plain loop's optimizers are seen by what they do: the weights change. So a rank knows that it holds half
/// a step if an operation fails between optimizer.step() and commit(). Of Lockstep's optimizers and
/// LibTorch's Adam and AdamW the versions of the tensors tell it, of others, as LibTorch's SGD, a checksum of
/// the weights, twice in each step.
class ElasticState {
 public:
  /// Of a plain loop. `group`: the outermost one, made from `world`; its handle is kept.
  ElasticState(const World& world, const ProcessGroup& group);
  /// Of a program with an Accelerator: what that has prepared, and prepares before run_elastic(), belongs to
  /// it.
  explicit ElasticState(const Accelerator& accelerator);
  ~ElasticState();
  ElasticState(const ElasticState&) = delete;
  ElasticState& operator=(const ElasticState&) = delete;

  // ---- Before run_elastic(). The objects must outlive it. Of an Accelerator's program, prepare() takes the
  // models, optimizers, schedulers and loaders: add() of one throws UsageError.

  /// The trained parameters, the frozen ones and the buffers of a model. Its wrapper is kept.
  template <class Module>
  void add(const DistributedDataParallel<Module>& model) {
    auto kept = std::make_shared<DistributedDataParallel<Module>>(model);
    add_model(contents_of(kept->module()), *kept, kept);
  }
  /// Its state, for LibTorch's optimizers and Lockstep's, but for a ZeroRedundancyOptimizer, and its learning
  /// rates. Its parameters are those of models that were added.
  void add(torch::optim::Optimizer& optimizer);
  void add(optim::Scheduler& scheduler);
  /// Its position. A rank's share of it (its sampler, or DataLoader::shard) is made from its rank.
  void add(const DataLoader& loader);
  /// Anything else: an average of weights, a best value. Names as of Accelerator::register_for_checkpointing.
  void add(const std::string& name, Checkpointable& object);

  /// The program has loaded a checkpoint of that step itself.
  void resume_at(std::uint64_t step);
  /// Called after each recovery on all ranks, also on those with a new process, when they have the state and
  /// before the body is entered again. It may communicate; its CommunicationErrors are those of the body.
  /// Replaces the one that was set before.
  void on_change(std::function<void(const GroupChange& change)> call) { on_change_ = std::move(call); }

  // ---- In the body

  /// The step is complete: all prepared optimizers and schedulers have stepped. Call it right after them,
  /// before anything else that communicates (logging, evaluation, checkpoints). Without an optimizer step
  /// since the last call it does nothing, so it may be called after each micro-batch.
  /// Checkpoints::after_step() calls it. Sends nothing. Without recoveries it only counts the steps. Throws
  /// UsageError outside of the body.
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
  friend void run_elastic_loop(ElasticState& state, const std::function<void(ElasticState& state)>& body);

  void add_model(ModelContents contents, WrappedModel model, std::shared_ptr<void> owner);
  void demand_plain_loop(const char* what) const;

  Accelerator accelerator_;
  bool is_plain_loop_;
  /// Of optimizers that were added.
  std::vector<std::shared_ptr<const void>> marks_;
  std::function<void(const GroupChange&)> on_change_;
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
void run_elastic_loop(ElasticState& state, const std::function<void(ElasticState& state)>& body);

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
/// A new process does the program's set-up as the first ones did, while they may live: as the spare of its
/// rank (`--spares`). It takes the results of object collectives (gather_object(), on_main_process() with a
/// result) from them. Lockstep's trackers leave their files alone until it logs something in its place.
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
auto run_elastic(ElasticState& state, Body&& body) {
  const auto call = [&]() -> decltype(auto) {
    if constexpr (std::is_invocable_v<Body&, ElasticState&>) {
      return body(state);
    } else {
      return body();
    }
  };
  using Result = std::remove_cvref_t<decltype(call())>;
  if constexpr (std::is_void_v<Result>) {
    run_elastic_loop(state, [&](ElasticState&) { call(); });
  } else {
    std::optional<Result> result;
    run_elastic_loop(state, [&](ElasticState&) { result.emplace(call()); });
    return std::move(*result);
  }
}
/// The same for what the Accelerator has prepared.
template <class Body>
auto run_elastic(const Accelerator& accelerator, Body&& body) {
  ElasticState state(accelerator);
  return run_elastic(state, std::forward<Body>(body));
}

}  // namespace lockstep
