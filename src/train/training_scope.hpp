#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/train/accelerator.hpp"
#include "train/accumulation_window.hpp"
#include "train/elastic/elastic_part.hpp"
#include "train/prepared_objects.hpp"

namespace lockstep::train {

/// One of the trainings that share an Accelerator: what it prepares is its own; see PreparedObjects. One
/// thread at a time.
class TrainingScope {
 public:
  explicit TrainingScope(const Accelerator& accelerator);
  /// Everything that was prepared with an Accelerator, and its window.
  static PreparedObjects& prepared_of(const Accelerator& accelerator);
  static AccumulationWindow& window_of(const Accelerator& accelerator);
  /// The step of the state that was loaded last; 0 if none was.
  static std::uint64_t loaded_step(const Accelerator& accelerator);
  static void set_loaded_step(const Accelerator& accelerator, std::uint64_t step);
  /// The program has a plain loop: what it adds, it has not got from prepare(), and its optimizers step by
  /// themselves.
  static void begin_plain_loop(const Accelerator& accelerator);
  static bool is_plain_loop(const Accelerator& accelerator);
  static void add_model(Accelerator& accelerator, ModelContents contents, WrappedModel model,
                        std::shared_ptr<void> owner);
  /// The optimizer may be used as long as it, and the result, exist.
  static std::shared_ptr<const void> add_optimizer(Accelerator& accelerator,
                                                   torch::optim::Optimizer& optimizer);
  /// The seed of the CPU's generator as the program has set it, after or before a state was loaded, which
  /// replaces it.
  static std::uint64_t seed_of(const Accelerator& accelerator);
  /// What Checkpoints::after_step() calls before anything else; null: nothing.
  static void on_commit(const Accelerator& accelerator, std::function<void()> commit);
  /// The state of this step was received from another rank, as if a checkpoint of it had been loaded.
  static void resume_at(const Accelerator& accelerator, std::uint64_t step);
  /// Calls what on_commit() has set.
  static void commit(const Accelerator& accelerator);
  /// Trackers drop what they have of later steps.
  static void drop_tracked_after(const Accelerator& accelerator, std::int64_t step);
  /// `part` must be removed before it is destroyed.
  static void add_elastic_part(const Accelerator& accelerator, ElasticPart& part);
  static void remove_elastic_part(const Accelerator& accelerator, const ElasticPart& part);
  static const std::vector<ElasticPart*>& elastic_parts(const Accelerator& accelerator);
  /// Forgets what it has prepared.
  ~TrainingScope();
  TrainingScope(const TrainingScope&) = delete;
  TrainingScope& operator=(const TrainingScope&) = delete;

  /// While it exists, what is prepared belongs to the scope, and accumulation has the scope's steps. At its
  /// end the Accelerator accumulates as before, and the gradients of the scope's models are its own again.
  class [[nodiscard]] Entered {
   public:
    explicit Entered(TrainingScope& scope);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Accelerator accelerator_;
    Owner before_;
    AccumulationWindow::Mark gradients_;
  };

  /// Forgets what the scope has prepared, before it trains again. *Local*.
  void forget();
  /// `scheduler` takes the place of `before` in checkpoints. *Local*.
  void replace_scheduler(const optim::Scheduler& before, optim::Scheduler& scheduler);
  /// Until the scope is left: accumulation steps above 1, or a global batch, replace the Accelerator's own.
  void set_accumulation(std::int64_t steps, std::int64_t global_batch_size);

  /// That of the Accelerator.
  AccumulationWindow& window() const;
  /// How often a state was loaded, which replaces what recorded steps refer to.
  std::uint64_t loads() const;

  /// Reads the scope's models from a whole checkpoint that was written while it was entered. False if it has
  /// prepared none. *Collective*. Throws like Accelerator::load_model; then nothing has changed.
  bool load_models(const std::filesystem::path& path) const;

 private:
  Accelerator accelerator_;
  Owner owner_;
};

}  // namespace lockstep::train
