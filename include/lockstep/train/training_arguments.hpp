#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/duration.hpp"
#include "lockstep/core/options.hpp"

namespace lockstep {

/// When something is done that recurs: transformers' IntervalStrategy. Flags and JSON take the words.
enum class IntervalStrategy { no, steps, epoch };
inline std::vector<std::string> option_words(IntervalStrategy) { return {"no", "steps", "epoch"}; }

/// When a checkpoint is written; `best`: when an evaluation is the best so far.
enum class SaveStrategy { no, steps, epoch, best };
inline std::vector<std::string> option_words(SaveStrategy) { return {"no", "steps", "epoch", "best"}; }

/// The order of the samples; `group_by_length` puts those of like length together.
enum class SamplingStrategy { random, sequential, group_by_length };
inline std::vector<std::string> option_words(SamplingStrategy) {
  return {"random", "sequential", "group_by_length"};
}

/// Everything about a training that is not its model and its data: names, defaults and meaning are those of
/// Hugging Face's TrainingArguments, but where noted. One declaration (training_argument_table) makes each
/// field a flag (--per-device-train-batch-size), a key in a JSON file (--config), a line of --help and a row
/// of docs/trainer.md.
///
///     lockstep::TrainingArguments args{.output_dir = "out", .num_train_epochs = 3, .learning_rate = 1e-3};
///
/// A plain struct: copies freely. check_training_arguments() finds what contradicts itself.
struct TrainingArguments {
  // ---- Run

  /// Where checkpoints, the trainer's state and logs go; made where needed.
  std::string output_dir = "trainer_output";
  /// Passes over the training data; parts of one are allowed.
  double num_train_epochs = 3.0;
  /// Optimizer steps; above 0 it replaces num_train_epochs.
  std::int64_t max_steps = -1;
  /// The length of the training in any unit, in place of both. A time is that of train(), over all restarts
  /// (TrainerState::train_seconds); the first step after it is the last.
  std::optional<Duration> max_duration = {};
  /// Samples of one rank in a micro-batch.
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  /// Micro-batches for one optimizer step.
  std::int64_t gradient_accumulation_steps = 1;
  /// Samples of all ranks for one optimizer step: then the accumulation steps follow from the number of
  /// ranks, so that a job computes the same on another number of them. 0: not used.
  std::int64_t global_batch_size = 0;
  /// Starts LibTorch's random numbers, and the order of the data.
  std::uint64_t seed = 42;
  /// The seed of the order alone, where it is to be another.
  std::optional<std::uint64_t> data_seed = {};
  /// Ask LibTorch for operations that always give the same bits, at the price of speed.
  bool full_determinism = false;
  /// "auto": from the newest whole checkpoint in output_dir, if there is one, so that the same command goes
  /// on after a restart; "never"; or the path of a checkpoint to begin with.
  std::string resume_from_checkpoint = "auto";
  /// Evaluate before the first step.
  bool eval_on_start = false;
  /// A few steps of everything to see that a program works: this many; 0: the real run.
  std::int64_t fast_dev_run = 0;

  // ---- Optimizer

  double learning_rate = 5e-5;
  /// Not on biases and the weights of normalisation layers.
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  /// Losses with a weight, such as a number of tokens, are divided by the weight of all ranks: every token
  /// weighs the same. Off: by this rank's own, so that every rank weighs the same. See Loss::weight.
  bool average_tokens_across_devices = true;
  /// Gradients are scaled down to this norm; 0: not. The norm is logged either way.
  double max_grad_norm = 1.0;
  /// "adamw_torch_fused", "adamw_torch" (the same here), "adam", "sgd", "adagrad" or "rmsprop".
  std::string optim = "adamw_torch_fused";
  /// The momentum of sgd.
  double sgd_momentum = 0.0;
  /// The share of probability that the labels give to the other classes.
  double label_smoothing_factor = 0.0;

  // ---- Learning rate

  /// A schedule of transformers' get_scheduler, or "reduce_lr_on_plateau".
  std::string lr_scheduler_type = "linear";
  /// The schedule's own numbers as a JSON object: {"num_cycles": 2}. The keys of each schedule are
  /// transformers':
  ///   cosine, cosine_with_restarts: num_cycles
  ///   cosine_with_min_lr: num_cycles, min_lr or min_lr_rate
  ///   cosine_warmup_with_min_lr: the same, and warmup_lr_rate
  ///   polynomial: lr_end, power
  ///   inverse_sqrt: timescale
  ///   warmup_stable_decay: num_decay_steps (needed), num_stable_steps, min_lr_ratio, warmup_type,
  ///   decay_type,
  ///     num_cycles
  ///   reduce_lr_on_plateau: mode, factor, patience, threshold, threshold_mode, cooldown, min_lr, eps
  /// The others take none. See ScheduleOptions and PlateauOptions, which have the same names.
  std::string lr_scheduler_kwargs = "{}";
  /// Steps in which the rate grows from 0.
  Duration warmup_steps = 0;

  // ---- Precision

  /// Mixed precision. Not both.
  bool bf16 = false;
  bool fp16 = false;
  /// Evaluate with the model itself in that precision: half the memory, and other numbers.
  bool bf16_full_eval = false;
  bool fp16_full_eval = false;
  /// Let CUDA devices multiply float32 matrices with 10 bits of mantissa; nothing: as LibTorch has it.
  std::optional<bool> tf32 = {};
  /// Keep no activations inside the model's units; backward computes them again: memory for time, in the same
  /// bits. See lockstep::set_activation_checkpointing.
  bool gradient_checkpointing = false;
  /// Weights, gradients and the optimizer's state are divided over the ranks: "full_shard" (ZeRO-3) or
  /// "shard_grad_op" (ZeRO-2), or "hybrid_shard" and "hybrid_shard_zero2", where the ranks of each node
  /// divide them among themselves; with "auto_wrap" beside it or not. Empty: every rank has all of them. See
  /// docs/fsdp.md.
  std::string fsdp = "";
  /// How: JSON, or the path of a JSON file, with transformers' keys reshard_after_forward, backward_prefetch
  /// ("backward_pre" or "no_prefetch"), activation_checkpointing and fsdp_version (2).
  std::string fsdp_config = "{}";

  // ---- Logging

  IntervalStrategy logging_strategy = IntervalStrategy::steps;
  Duration logging_steps = 500;
  bool logging_first_step = false;
  /// A loss that is not finite does not count in the logged mean; a warning says in which step it was.
  bool logging_nan_inf_filter = true;
  /// What rank 0 says, and the others: "debug", "info", "warning", "error" or "passive" (info). Of the
  /// trainer's own warnings, and of what the program says with Trainer::logger().
  std::string log_level = "passive";
  std::string log_level_replica = "warning";
  /// The first rank of each node speaks as rank 0 does, for logs that nodes keep by themselves. Off: rank 0
  /// alone.
  bool log_on_each_node = true;
  /// No progress bar.
  bool disable_tqdm = false;
  /// Any of "tensorboard", "jsonl" and "csv".
  std::vector<std::string> report_to = {};
  /// Where their files go. Empty: `output_dir`/runs.
  std::string logging_dir = {};
  /// The run's name: a folder of that name in logging_dir.
  std::string run_name = {};

  // ---- Evaluation

  IntervalStrategy eval_strategy = IntervalStrategy::no;
  /// Nothing: logging_steps.
  std::optional<Duration> eval_steps = {};
  /// No evaluation before this many steps, or epochs ("2ep").
  Duration eval_delay = 0;
  /// Compute the loss and no metrics.
  bool prediction_loss_only = false;
  /// EvaluationMetrics sees each batch of its rank as it comes, and nothing is kept; transformers' default is
  /// the opposite. Off: rank 0 alone sees all samples at once, in the order of the data set, for metrics that
  /// are no sums.
  bool batch_eval_metrics = true;
  /// Batches whose outputs predict() keeps on the device before it copies them to the host; 0: each at once.
  std::int64_t eval_accumulation_steps = 0;
  /// No more than so many batches of each rank in an epoch, or in an evaluation; 0: all.
  std::int64_t limit_train_batches = 0;
  std::int64_t limit_eval_batches = 0;

  // ---- Saving

  SaveStrategy save_strategy = SaveStrategy::steps;
  Duration save_steps = 500;
  /// Checkpoints kept at most; the newest and the best always stay. 0: all.
  std::int64_t save_total_limit = 0;
  /// Only the weights: such a checkpoint cannot be resumed from. A training that is told to stop leaves a
  /// whole one all the same.
  bool save_only_model = false;
  /// For an output_dir on local disks.
  bool save_on_each_node = false;
  /// Write checkpoints in a thread, while training goes on.
  bool async_save = false;
  /// When the training ends, go back to the weights of the best evaluation.
  bool load_best_model_at_end = false;
  /// Which metric says so; "eval_" may be left out. Nothing: the loss, where one is needed. A name that
  /// evaluations do not have ends the training before its first step where the names are known by then (see
  /// EvaluationMetrics::names), else at the first evaluation.
  std::optional<std::string> metric_for_best_model = {};
  /// Nothing: unless the metric's name ends in "loss".
  std::optional<bool> greater_is_better = {};
  /// Resume with the first batch of the epoch and not where the training stopped.
  bool ignore_data_skip = false;
  /// SIGTERM and SIGUSR1 stop the training with a checkpoint of the same step on all ranks.
  bool stop_at_sigterm = true;

  // ---- Data

  bool dataloader_drop_last = false;
  /// Threads that read ahead; 0 reads between the steps.
  int dataloader_num_workers = 0;
  bool dataloader_pin_memory = true;
  bool dataloader_persistent_workers = true;
  /// Batches read ahead by each worker.
  int dataloader_prefetch_factor = 2;
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;
  /// The tensor whose length counts for group_by_length.
  std::string length_column_name = "input_ids";

  // ---- Ranks

  /// "auto", "cpu", "cuda" or "cuda:1".
  std::string device = "auto";
  /// "auto", "shm", "gloo" or "nccl".
  std::string ddp_backend = "auto";
  /// Seconds.
  std::int64_t ddp_timeout = 1800;
  /// Hugging Face looks for unused parameters unless told otherwise; here it is asked for.
  bool ddp_find_unused_parameters = false;
  double ddp_bucket_cap_mb = 25.0;
  bool ddp_broadcast_buffers = true;
  bool ddp_static_graph = false;
  bool ddp_gradient_as_bucket_view = true;
  /// The batch size is that of all ranks together.
  bool split_batches = false;
  /// Workers copy the batches to a CUDA device themselves, beside the computation: see
  /// DataLoaderOptions::non_blocking. Of Hugging Face's accelerator_config, even_batches and
  /// use_seedable_sampler are no choice here, they are always on: all ranks make the same number of steps,
  /// and a training can go on in the middle of an epoch.
  bool non_blocking = false;

  /// A JSON file with any of these, for programs that read their options with the table.
  std::string config = {};
};

/// The table of all arguments: flags, JSON keys, help and checks of single values. A program includes it in
/// its own table: see OptionTable::include. *Local*.
const OptionTable<TrainingArguments>& training_argument_table();

/// Holds each value against the table, and all of them against each other. To be called before anything
/// starts; Trainer does. *Local*. Throws UsageError with one message that says what contradicts what, and
/// what to do.
void check_training_arguments(const TrainingArguments& args);

/// The metric by which checkpoints are judged, with "eval_" before it, or nothing where none is.
std::optional<std::string> best_metric_name(const TrainingArguments& args);
/// Whether more of it is better.
bool greater_metric_is_better(const TrainingArguments& args);

}  // namespace lockstep
