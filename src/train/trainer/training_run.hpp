#pragma once

#include <ATen/core/Tensor.h>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/checkpoints.hpp"
#include "lockstep/train/trainer.hpp"
#include "train/elastic/elastic_part.hpp"
#include "train/rules/resumed_arguments.hpp"
#include "train/rules/training_plan.hpp"
#include "train/trainer/loss_meter.hpp"
#include "train/trainer/rank_record.hpp"
#include "train/trainer/step_runner.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {

/// One call of Trainer::train(), from the first step to the last. *Collective*.
class TrainingRun final : train::ElasticPart {
 public:
  TrainingRun(Trainer& trainer, Trainer::Impl& impl) : trainer_(trainer), impl_(impl) {}

  TrainOutput run();

 private:
  TrainOutput run_steps(bool records);
  void prepare(bool records);
  void check_evaluations() const;
  void check_is_known(const std::string& metric) const;
  void begin_state(TrainerState done);
  void begin_record();
  void say_if_finished();
  void evaluate_on_start();
  void resume();
  void train_on_all_ranks();
  void go_on();
  void share_step();
  void commit_step();
  void note_commit();
  nlohmann::json elastic_state() const override;
  void take_elastic_state(const nlohmann::json& taken) override;
  void take_from_others(const nlohmann::json& taken);
  /// `before`: the arguments of the run that wrote the checkpoint, if they can be read.
  void take_state(TrainerState saved, const std::optional<TrainingArguments>& before);
  std::int64_t offset_of(const TrainerState& saved) const;
  void begin_best_anew(TrainerState& saved, const std::optional<TrainingArguments>& before) const;
  void find_best_beside(const std::filesystem::path& checkpoint,
                        const std::optional<TrainingArguments>& before);
  void settle_hyperparameters(const std::optional<TrainingArguments>& before);
  void begin_schedule(bool keep_rates);
  void note_given_options();
  void check_plateau() const;
  bool is_at_limit() const;
  void run_epochs();
  void run_epoch();
  void begin_epoch();
  bool has_read_epoch() const;
  void end_epoch(std::int64_t epoch);
  void run_micro_batch(const Batch& batch);
  void discard_window();
  void finish_step();
  void end_step();
  void step_schedule();
  void log_evaluate_save();
  void log_step();
  void evaluate();
  std::optional<double> best_metric_of(const LogValues& metrics) const;
  void judge(const LogValues& metrics);
  void step_schedule_by(const LogValues& metrics, std::optional<double> best);
  void save();
  void write_checkpoint();
  void write_weights();
  void on_writers(const std::function<void()>& write);
  void fold_counts();
  void fold_losses();
  bool completes(const std::function<void()>& work);
  void between_steps(const std::function<void()>& work);
  void finish_unfinished();
  void preempt();
  bool time_is_up() const;
  double train_seconds() const;
  std::string best_saved() const;
  bool is_best_saved() const;
  void note_best_checkpoint();
  void load_best();
  TrainOutput finish();
  std::function<void(const std::filesystem::path&)> files_to_add();
  void call(Trainer::Impl::Event event) { impl_.call(trainer_, event); }

  Trainer& trainer_;
  Trainer::Impl& impl_;
  std::optional<DataLoader> batches_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<train::LossMeter> meter_;
  std::optional<train::StepRunner> steps_;
  std::optional<train::RankRecord> record_;
  /// Whether there is something for a report beside it: values in files, or a checkpoint.
  bool has_records_ = false;
  train::TrainingSize size_;
  train::TrainingPlan plan_;
  /// The optimizer's options as the program gave them, before a checkpoint replaced them: of each group, with
  /// its full learning rate; and as numbers to be compared.
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> given_options_;
  train::OptimizerNumbers given_;
  /// What training_args.json says: the arguments that are in effect.
  TrainingArguments args_in_effect_;
  /// The checkpoints that this run wrote or resumed from, by their steps.
  std::map<std::int64_t, std::filesystem::path> written_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  /// Training time used by earlier runs.
  double seconds_before_ = 0;
  std::int64_t first_step_ = 0;
  std::int64_t first_sample_ = 0;
  std::int64_t micro_batches_in_step_ = 0;
  /// Step of the last log; loss summed since this run began, over all ranks.
  std::int64_t last_logged_step_ = 0;
  double loss_of_run_ = 0;
  /// This rank's, since the last sum over ranks.
  double flops_ = 0;
  double samples_ = 0;
  /// Of the last step; the norm is on the device, and read only when it is logged or saved.
  double learning_rate_ = 0;
  at::Tensor grad_norm_;
  std::optional<double> metric_of_step_;
  bool preempted_ = false;
  /// Whether on_epoch_end is still to come for the epoch of the last step.
  bool in_epoch_ = false;
  /// An existing checkpoint of this step does not contain the work that remains after it.
  bool is_outdated_ = false;
  /// Whether the last step ends the training because of max_duration.
  bool time_is_over_ = false;
  /// What the last step has left, where a training goes on whose lost rank was replaced.
  struct Committed {
    TrainerState state;  // Without its log.
    std::size_t log_entries = 0;
    TrainerControl control;
    std::vector<double> losses;
    std::int64_t last_logged_step = 0;
    double loss_of_run = 0;
    double learning_rate = 0;
    at::Tensor grad_norm;
    bool in_epoch = false;
    bool is_outdated = false;
    bool time_is_over = false;
    /// This run has made no step yet.
    bool begins = true;
  };
  Committed committed_;
  bool is_elastic_ = false;
  /// This process replaces a lost one, and has not begun.
  bool is_new_process_ = false;
  /// The last epoch of which callbacks have heard that it begins.
  std::int64_t begun_epoch_ = -1;
};

}  // namespace lockstep
