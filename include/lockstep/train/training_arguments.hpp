#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/duration.hpp"
#include "lockstep/core/options.hpp"

namespace lockstep {

/// When a recurring action is done: transformers' IntervalStrategy. Flags and JSON use the words.
enum class IntervalStrategy { no, steps, epoch };
inline std::vector<std::string> option_words(IntervalStrategy) { return {"no", "steps", "epoch"}; }

/// When a checkpoint is written; `best`: after an evaluation that is the best so far.
enum class SaveStrategy { no, steps, epoch, best };
inline std::vector<std::string> option_words(SaveStrategy) { return {"no", "steps", "epoch", "best"}; }

/// The order of the samples; `group_by_length` groups samples of similar length.
enum class SamplingStrategy { random, sequential, group_by_length };
inline std::vector<std::string> option_words(SamplingStrategy) {
  return {"random", "sequential", "group_by_length"};
}

/// Whether steps are recorded as CUDA graphs: where possible, always (an error where it is not), or never.
enum class CudaGraphs { automatic, on, off };
inline std::vector<std::string> option_words(CudaGraphs) { return {"auto", "on", "off"}; }

/// All settings of a training except its model and data. Names, defaults and meaning are those of Hugging
/// Face's TrainingArguments unless noted. One declaration (training_argument_table) makes each field a flag
/// (--per-device-train-batch-size), a key in a JSON file (--config), a line of --help and a row of
/// docs/trainer.md.
///
///     lockstep::TrainingArguments args{.output_dir = "out", .num_train_epochs = 3, .learning_rate = 1e-3};
///
/// A plain struct. check_training_arguments() finds contradictions.
struct TrainingArguments {
  // ---- Run

  /// Folder of checkpoints, the trainer's state and logs; created if needed.
  std::string output_dir = "trainer_output";
  /// Epochs; may be fractional. An epoch that a callback cuts short counts as one.
  double num_train_epochs = 3.0;
  /// Optimizer steps; if above 0, replaces num_train_epochs.
  std::int64_t max_steps = -1;
  /// The length of the training in any unit; replaces both. A time is that of train(), over all restarts
  /// (TrainerState::train_seconds); the first step after it is the last.
  std::optional<Duration> max_duration = {};
  /// Samples of one rank in a micro-batch.
  std::int64_t per_device_train_batch_size = 8;
  std::int64_t per_device_eval_batch_size = 8;
  /// Micro-batches per optimizer step.
  std::int64_t gradient_accumulation_steps = 1;
  /// Samples of all ranks per optimizer step: the accumulation steps then follow from the number of ranks, so
  /// that a job computes the same on another number of ranks. 0: not used.
  std::int64_t global_batch_size = 0;
  /// Seed of LibTorch's generators and of the data's order.
  std::uint64_t seed = 42;
  /// Seed of the data's order, if different.
  std::optional<std::uint64_t> data_seed = {};
  /// Only use operations that always give the same bits, which are slower.
  bool full_determinism = false;
  /// "auto": resume from the newest complete checkpoint in output_dir, if there is one, so that a restart
  /// with the same command continues; "never"; or the path of a checkpoint to start from.
  std::string resume_from_checkpoint = "auto";
  /// Evaluate before the first step.
  bool eval_on_start = false;
  /// Run only this many steps of everything, to check that a program works; 0: off.
  std::int64_t fast_dev_run = 0;

  // ---- Optimizer

  double learning_rate = 5e-5;
  /// Not applied to biases and the weights of normalization layers.
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  /// Divide losses with a weight, such as a number of tokens, by the weight of all ranks: every token counts
  /// the same. Off: by this rank's own weight, so that every rank counts the same. See Loss::weight.
  bool average_tokens_across_devices = true;
  /// Gradients are scaled down to at most this norm; 0: no clipping. The norm is logged in both cases.
  double max_grad_norm = 1.0;
  /// "adamw_torch_fused", "adamw_torch" (the same here), "adam", "sgd", "adagrad" or "rmsprop".
  std::string optim = "adamw_torch_fused";
  /// Momentum of sgd.
  double sgd_momentum = 0.0;
  /// The probability that labels assign to all classes instead of the given one.
  double label_smoothing_factor = 0.0;

  // ---- Learning rate

  /// A schedule of transformers' get_scheduler, or "reduce_lr_on_plateau".
  std::string lr_scheduler_type = "linear";
  /// The schedule's own parameters as a JSON object: {"num_cycles": 2}. The keys of each schedule are
  /// transformers':
  ///   cosine, cosine_with_restarts: num_cycles
  ///   cosine_with_min_lr: num_cycles, min_lr or min_lr_rate
  ///   cosine_warmup_with_min_lr: the same, and warmup_lr_rate
  ///   polynomial: lr_end, power
  ///   inverse_sqrt: timescale
  ///   warmup_stable_decay: num_decay_steps (required), num_stable_steps, min_lr_ratio, warmup_type,
  ///     decay_type, num_cycles
  ///   reduce_lr_on_plateau: mode, factor, patience, threshold, threshold_mode, cooldown, min_lr, eps
  /// The default of mode follows greater_is_better. In transformers it is always min, which lowers the rate
  /// while an accuracy improves.
  /// The others take none. See ScheduleOptions and PlateauOptions, which have the same names.
  std::string lr_scheduler_kwargs = "{}";
  /// Steps in which the rate increases from 0.
  Duration warmup_steps = 0;

  // ---- Precision

  /// Mixed precision; at most one of them.
  bool bf16 = false;
  bool fp16 = false;
  /// Convert the model itself to that dtype for evaluations: half the memory, and different results.
  bool bf16_full_eval = false;
  bool fp16_full_eval = false;
  /// Allow TF32 (10 bits of mantissa) for float32 matrix products on CUDA devices; unset: LibTorch's setting.
  std::optional<bool> tf32 = {};
  /// On a CUDA device, record the kernels of a step once as CUDA graphs, which the host then launches as a
  /// whole: faster where the device waits for the host, as with small models. The results are the same. Steps
  /// that cannot be recorded run as usual, and one line of the log says why; `on`: an error instead. Off by
  /// default until it has been proven on GPUs. See
  /// docs/training.md for what a step must not do.
  CudaGraphs cuda_graphs = CudaGraphs::off;
  /// "auto": models use Lockstep's own CUDA kernels, in 16 bits; "off": LibTorch's operations. See
  /// AcceleratorOptions::fused_kernels.
  std::string fused_kernels = "auto";
  /// Keep no activations inside the model's units; backward recomputes them: less memory, more time, the same
  /// bits. See lockstep::set_activation_checkpointing.
  bool gradient_checkpointing = false;
  /// Shards weights, gradients and optimizer state over the ranks: "full_shard" (ZeRO-3) or "shard_grad_op"
  /// (ZeRO-2), or "hybrid_shard" and "hybrid_shard_zero2", which shard within each node; "auto_wrap" may be
  /// added. Empty: every rank has all of them. See docs/fsdp.md.
  std::string fsdp = "";
  /// Options of fsdp: JSON, or the path of a JSON file, with transformers' keys reshard_after_forward,
  /// backward_prefetch ("backward_pre" or "no_prefetch"), activation_checkpointing,
  /// transformer_layer_cls_to_wrap and fsdp_version (2).
  std::string fsdp_config = "{}";

  // ---- Logging

  IntervalStrategy logging_strategy = IntervalStrategy::steps;
  Duration logging_steps = 500;
  bool logging_first_step = false;
  /// Losses that are not finite are left out of the logged mean; a warning counts such steps.
  bool logging_nan_inf_filter = true;
  /// Levels of rank 0 and of the other ranks: "debug", "info", "warning", "error" or "passive" (info). They
  /// apply to the trainer's warnings and to Trainer::logger().
  std::string log_level = "passive";
  std::string log_level_replica = "warning";
  /// The first rank of each node logs like rank 0, for nodes that keep their own logs. Off: only rank 0.
  bool log_on_each_node = true;
  /// No progress bar.
  bool disable_tqdm = false;
  /// Any of "tensorboard", "jsonl" and "csv"; or "none", which is the default.
  std::vector<std::string> report_to = {};
  /// Folder of their files. Empty: `output_dir`/runs.
  std::string logging_dir = {};
  /// Name of the run: a folder of that name in logging_dir.
  std::string run_name = {};

  // ---- Evaluation

  IntervalStrategy eval_strategy = IntervalStrategy::no;
  /// Unset: logging_steps.
  std::optional<Duration> eval_steps = {};
  /// No evaluation before this many steps, or epochs ("2ep", or a whole number with IntervalStrategy::epoch).
  Duration eval_delay = 0;
  /// Compute the loss and no metrics.
  bool prediction_loss_only = false;
  /// The columns with labels. Of batches that lack one of them, evaluate() and predict() compute neither loss
  /// nor metrics, as transformers does. Empty: the columns whose names contain "label", and start_positions
  /// and end_positions; then a batch counts as one without labels if it has no such column, but those of the
  /// trainer's train_dataset or eval_dataset do.
  std::vector<std::string> label_names = {};
  /// EvaluationMetrics gets one batch of its rank at a time, and no samples are kept; transformers' default
  /// is the opposite. Off: rank 0 gets all samples at once, in the order of the data set, for metrics that
  /// are not sums.
  bool batch_eval_metrics = true;
  /// Batches whose outputs stay on the device before they are copied to the host; 0: each at once.
  std::int64_t eval_accumulation_steps = 0;
  /// Maximum number of batches per rank in an epoch, or in an evaluation; 0: all. They are the first ones of
  /// the epoch's own order.
  std::int64_t limit_train_batches = 0;
  std::int64_t limit_eval_batches = 0;

  // ---- Saving

  SaveStrategy save_strategy = SaveStrategy::steps;
  Duration save_steps = 500;
  /// Maximum number of checkpoints; the newest and the best are always kept. 0: all.
  std::int64_t save_total_limit = 0;
  /// Save only the weights; such a checkpoint cannot be resumed from. A training that is told to stop
  /// nevertheless writes a complete one.
  bool save_only_model = false;
  /// Set it if output_dir is on local disks.
  bool save_on_each_node = false;
  /// Write checkpoints in a thread while training continues.
  bool async_save = false;
  /// Load the weights of the best evaluation at the end of the training.
  bool load_best_model_at_end = false;
  /// The metric that decides which evaluation is best; "eval_" may be omitted. Unset: the loss, if a metric
  /// is needed. If evaluations do not have the metric, the training ends before its first step if the names
  /// are known by then (see EvaluationMetrics::names), otherwise at the first evaluation.
  std::optional<std::string> metric_for_best_model = {};
  /// Unset: true unless the metric's name ends in "loss".
  std::optional<bool> greater_is_better = {};
  /// Resume with the learning rate, weight decay and the optimizer's other numbers as they are given now. By
  /// default those of the checkpoint stay, and rank 0 prints the arguments that they override.
  bool override_on_resume = false;
  /// Resume with the first batch of the epoch instead of where the training stopped.
  bool ignore_data_skip = false;
  /// SIGTERM and SIGUSR1 stop the training with a checkpoint of the same step on all ranks.
  bool stop_at_sigterm = true;

  // ---- Data

  /// Drop the last, smaller batch of an epoch. Evaluations and predictions use all samples nevertheless,
  /// unlike in transformers: their results would depend on the batch size and the number of ranks.
  bool dataloader_drop_last = false;
  /// Threads that read ahead; 0: read between the steps.
  int dataloader_num_workers = 0;
  bool dataloader_pin_memory = true;
  bool dataloader_persistent_workers = true;
  /// Batches read ahead by each worker.
  int dataloader_prefetch_factor = 2;
  SamplingStrategy train_sampling_strategy = SamplingStrategy::random;
  /// For group_by_length: the tensor whose length counts, or that holds each sample's length.
  std::string length_column_name = "input_ids";

  // ---- Ranks

  /// "auto", "cpu", "cuda" or "cuda:1".
  std::string device = "auto";
  /// "auto", "shm", "gloo" or "nccl".
  std::string ddp_backend = "auto";
  /// Seconds.
  std::int64_t ddp_timeout = 1800;
  /// Off by default, unlike in Hugging Face's Trainer.
  bool ddp_find_unused_parameters = false;
  double ddp_bucket_cap_mb = 25.0;
  bool ddp_broadcast_buffers = true;
  bool ddp_static_graph = false;
  bool ddp_gradient_as_bucket_view = true;
  /// The batch size is that of all ranks together.
  bool split_batches = false;
  /// Workers copy batches to a CUDA device in parallel with the computation: see
  /// DataLoaderOptions::non_blocking. even_batches and use_seedable_sampler of Hugging Face's
  /// accelerator_config are always on: all ranks do the same number of steps, and a training can resume in
  /// the middle of an epoch.
  bool non_blocking = false;

  /// A JSON file with any of these arguments, for programs that read their options with the table.
  std::string config = {};
};

/// The table of all arguments: flags, JSON keys, help, and checks of single values. A program includes it in
/// its own table: see OptionTable::include. *Local*.
const OptionTable<TrainingArguments>& training_argument_table();

/// Checks each value against the table, and the values against each other. Call it before anything starts;
/// Trainer does. *Local*. Throws UsageError with one message that names the contradictions and what to do.
void check_training_arguments(const TrainingArguments& args);

/// The metric that decides which checkpoint is best, with the prefix "eval_"; empty if there is none.
std::optional<std::string> best_metric_name(const TrainingArguments& args);
/// Whether a greater value of it is better.
bool greater_metric_is_better(const TrainingArguments& args);

}  // namespace lockstep
