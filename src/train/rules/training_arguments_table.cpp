#include "lockstep/train/training_arguments.hpp"

#include "train/rules/schedule_kwargs.hpp"

namespace lockstep {
namespace {

using Args = TrainingArguments;
using Table = OptionTable<Args>;

const std::vector<std::string> kLevels{"passive", "debug", "info", "warning", "error"};

void add_run(Table& table) {
  table.section("run")
      .add("output-dir", &Args::output_dir, "Folder for checkpoints, state and logs; created if necessary.",
           not_empty())
      .add("config", &Args::config, "JSON file with any of these options; flags take precedence.",
           metavar("FILE"))
      .add("num-train-epochs", &Args::num_train_epochs, "Passes over the training data.", more_than(0))
      .add("max-steps", &Args::max_steps, "Optimizer steps; if positive, replaces --num-train-epochs.",
           at_least(-1))
      .add("max-duration", &Args::max_duration,
           "Length of the training in any unit, instead of epochs and steps: 3ep, 500ba, 100000sp, 3600sec "
           "(training time over all restarts).")
      .add("per-device-train-batch-size", &Args::per_device_train_batch_size,
           "Samples per rank in a micro-batch.", at_least(1))
      .add("per-device-eval-batch-size", &Args::per_device_eval_batch_size,
           "Samples per rank in an evaluation batch.", at_least(1))
      .add("gradient-accumulation-steps", &Args::gradient_accumulation_steps,
           "Micro-batches per optimizer step.", at_least(1))
      .add("global-batch-size", &Args::global_batch_size,
           "Samples of all ranks per optimizer step, which determines the accumulation steps; 0: not used.",
           at_least(0))
      .add("seed", &Args::seed, "Seed of all random numbers.")
      .add("data-seed", &Args::data_seed, "Seed of the data order, if different from --seed.")
      .add("full-determinism", &Args::full_determinism, "Use only operations that always give the same bits.")
      .add("resume-from-checkpoint", &Args::resume_from_checkpoint,
           "auto: the newest complete checkpoint in --output-dir, if any; never; or a path.", not_empty())
      .add("eval-on-start", &Args::eval_on_start, "Evaluate before the first step.")
      .add("fast-dev-run", &Args::fast_dev_run, "Run only this many steps, to test a program; 0: all.",
           at_least(0));
}

void add_optimizer(Table& table) {
  table.section("optimizer")
      .add("learning-rate", &Args::learning_rate, "The initial learning rate, after warmup.", at_least(0))
      .add("weight-decay", &Args::weight_decay, "Weight decay; by default not applied to biases and norms.",
           at_least(0))
      .add("adam-beta1", &Args::adam_beta1, "Decay of the mean of gradients.", at_least(0), less_than(1))
      .add("adam-beta2", &Args::adam_beta2, "Decay of the mean of squared gradients.", at_least(0),
           less_than(1))
      .add("adam-epsilon", &Args::adam_epsilon, "Added to the square root of the mean of squared gradients.",
           at_least(0))
      .add("average-tokens-across-devices", &Args::average_tokens_across_devices,
           "Divide a sum over tokens by their number on all ranks, not on this rank only.")
      .add("max-grad-norm", &Args::max_grad_norm, "Clip gradients to this norm; 0: no clipping.", at_least(0))
      .add("optim", &Args::optim, "The optimizer.",
           one_of({"adamw_torch_fused", "adamw_torch", "adam", "sgd", "adagrad", "rmsprop"}))
      .add("sgd-momentum", &Args::sgd_momentum, "Momentum of sgd.", at_least(0), less_than(1))
      .add("label-smoothing-factor", &Args::label_smoothing_factor,
           "Fraction of the probability that is spread over the other classes.", at_least(0), less_than(1))
      .add("lr-scheduler-type", &Args::lr_scheduler_type, "The learning rate schedule.",
           one_of(schedule_types()))
      .add("lr-scheduler-kwargs", &Args::lr_scheduler_kwargs,
           "Options of the schedule as a JSON object, such as {\"num_cycles\": 2}, with transformers' names. "
           "The cosine schedules: num_cycles; cosine_with_min_lr and cosine_warmup_with_min_lr: min_lr or "
           "min_lr_rate (a ratio), the latter also warmup_lr_rate; polynomial: lr_end, power; inverse_sqrt: "
           "timescale; warmup_stable_decay: num_decay_steps, num_stable_steps, min_lr_ratio, warmup_type, "
           "decay_type, num_cycles; reduce_lr_on_plateau: mode, factor, patience, threshold, threshold_mode, "
           "cooldown, min_lr, eps.",
           metavar("JSON"))
      .add("warmup-steps", &Args::warmup_steps,
           "Steps, or a fraction of all steps, during which the learning rate rises from 0.");
}

void add_precision(Table& table) {
  table.section("precision")
      .add("bf16", &Args::bf16, "Mixed precision with bfloat16.")
      .add("fp16", &Args::fp16, "Mixed precision with float16, on CUDA devices.")
      .add("bf16-full-eval", &Args::bf16_full_eval, "Evaluate with the model in bfloat16.")
      .add("fp16-full-eval", &Args::fp16_full_eval, "Evaluate with the model in float16.")
      .add("tf32", &Args::tf32, "Use TF32 for float32 matrix products on CUDA devices.")
      .add("cuda-graphs", &Args::cuda_graphs,
           "Record steps as CUDA graphs. auto: where possible; on: always, otherwise an error; off: never.")
      .add("fused-kernels", &Args::fused_kernels,
           "Lockstep's own CUDA kernels in 16 bits (auto), or LibTorch's operations alone (off).",
           one_of({"auto", "off"}))
      .add("gradient-checkpointing", &Args::gradient_checkpointing,
           "Do not keep activations inside the model's layers; recompute them in backward.")
      .add(
          "fsdp", &Args::fsdp,
          "Shard weights, gradients and optimizer state over all ranks: full_shard (ZeRO-3) or shard_grad_op "
          "(ZeRO-2); or over the ranks of each node: hybrid_shard, hybrid_shard_zero2; empty: off.")
      .add("fsdp-config", &Args::fsdp_config,
           "Options of --fsdp as a JSON object, or the path of a file with one: reshard_after_forward, "
           "backward_prefetch (backward_pre or no_prefetch), activation_checkpointing, "
           "transformer_layer_cls_to_wrap, fsdp_version (2).",
           metavar("JSON"));
}

void add_logging(Table& table) {
  table.section("logging")
      .add("logging-strategy", &Args::logging_strategy, "When to log.")
      .add("logging-steps", &Args::logging_steps, "Steps between logs.", more_than(0))
      .add("logging-first-step", &Args::logging_first_step, "Log the first step too.")
      .add("logging-nan-inf-filter", &Args::logging_nan_inf_filter,
           "Exclude losses that are not finite from the logged mean and from that of an evaluation, with a "
           "warning.")
      .add("log-level", &Args::log_level, "Log level of rank 0.", one_of(kLevels))
      .add("log-level-replica", &Args::log_level_replica, "Log level of the other ranks.", one_of(kLevels))
      .add("log-on-each-node", &Args::log_on_each_node,
           "The first rank of each node uses --log-level too; otherwise only rank 0.")
      .add("disable-tqdm", &Args::disable_tqdm, "No progress bar.")
      .add("report-to", &Args::report_to, "Trackers; none is the default.",
           one_of({"tensorboard", "jsonl", "csv", "mlflow", "none"}))
      .add("logging-dir", &Args::logging_dir, "Folder of the trackers' files; default: runs in --output-dir.")
      .add("run-name", &Args::run_name, "Name of the run: a folder in --logging-dir.");
}

void add_evaluation(Table& table) {
  table.section("evaluation")
      .add("eval-strategy", &Args::eval_strategy, "When to evaluate.")
      .add("eval-steps", &Args::eval_steps, "Steps between evaluations; default: --logging-steps.",
           more_than(0))
      .add("eval-delay", &Args::eval_delay, "No evaluation before this many steps, or epochs (2ep).")
      .add("prediction-loss-only", &Args::prediction_loss_only, "Compute only the loss, no metrics.")
      .add(
          "label-names", &Args::label_names,
          "Columns with labels: of batches without them, no loss and no metrics are computed. Default: those "
          "with \"label\" in their names.")
      .add("batch-eval-metrics", &Args::batch_eval_metrics,
           "Compute metrics batch by batch; otherwise from all samples, on rank 0.")
      .add("eval-accumulation-steps", &Args::eval_accumulation_steps,
           "Batches whose outputs stay on the device before they are copied to the host; 0: copy each "
           "immediately.",
           at_least(0))
      .add("limit-train-batches", &Args::limit_train_batches, "Maximum batches per rank in an epoch; 0: all.",
           at_least(0))
      .add("limit-eval-batches", &Args::limit_eval_batches,
           "Maximum batches per rank in an evaluation; 0: all.", at_least(0));
}

void add_saving(Table& table) {
  table.section("checkpoints")
      .add("save-strategy", &Args::save_strategy, "When to save checkpoints.")
      .add("save-steps", &Args::save_steps, "Steps between checkpoints.", more_than(0))
      .add("save-total-limit", &Args::save_total_limit,
           "Maximum number of checkpoints; the newest and the best are always kept. 0: keep all.",
           at_least(0))
      .add("save-only-model", &Args::save_only_model,
           "Save only weights; such a checkpoint cannot be resumed from.")
      .add("save-on-each-node", &Args::save_on_each_node,
           "Save on each node, for an --output-dir on local disks.")
      .add("async-save", &Args::async_save, "Write checkpoints in a thread while training continues.")
      .add("load-best-model-at-end", &Args::load_best_model_at_end,
           "Load the weights of the best evaluation at the end.")
      .add("metric-for-best-model", &Args::metric_for_best_model,
           "The metric that determines the best model; eval_ may be omitted.")
      .add("greater-is-better", &Args::greater_is_better,
           "Whether a greater metric is better; default: yes, unless its name ends in loss.")
      .add("override-on-resume", &Args::override_on_resume,
           "Resume with the given learning rate, weight decay and other numbers of the optimizer, instead of "
           "those of the checkpoint.")
      .add("ignore-data-skip", &Args::ignore_data_skip, "Resume with the first batch of the epoch.")
      .add("stop-at-sigterm", &Args::stop_at_sigterm,
           "On SIGTERM, stop the training with a checkpoint and exit code 85, as on SIGUSR1.");
}

void add_data(Table& table) {
  table.section("data")
      .add("dataloader-drop-last", &Args::dataloader_drop_last,
           "Drop the last, smaller batch of the training data.")
      .add("dataloader-num-workers", &Args::dataloader_num_workers, "Threads that prefetch batches.",
           at_least(0))
      .add("dataloader-pin-memory", &Args::dataloader_pin_memory,
           "Use page-locked memory for copies to CUDA devices.")
      .add("dataloader-persistent-workers", &Args::dataloader_persistent_workers,
           "Keep the threads from epoch to epoch.")
      .add("dataloader-prefetch-factor", &Args::dataloader_prefetch_factor,
           "Batches that each thread prefetches.", at_least(1))
      .add("train-sampling-strategy", &Args::train_sampling_strategy, "The order of the samples.")
      .add("length-column-name", &Args::length_column_name,
           "For group_by_length: the tensor whose length counts, or that holds each sample's length.",
           not_empty());
}

void add_ranks(Table& table) {
  table.section("machine")
      .add("device", &Args::device, "auto, cpu, cuda, or a device such as cuda:0.", not_empty())
      .add("ddp-backend", &Args::ddp_backend, "Backend for communication between ranks.",
           one_of({"auto", "shm", "gloo", "nccl"}))
      .add("ddp-timeout", &Args::ddp_timeout, "Timeout in seconds of a rank that waits for others.",
           at_least(1))
      .add("ddp-find-unused-parameters", &Args::ddp_find_unused_parameters,
           "Find parameters that were not used in a step.")
      .add("ddp-bucket-cap-mb", &Args::ddp_bucket_cap_mb, "Size of a gradient bucket in MiB.", more_than(0))
      .add("ddp-broadcast-buffers", &Args::ddp_broadcast_buffers,
           "Broadcast rank 0's buffers before each step.")
      .add("ddp-static-graph", &Args::ddp_static_graph, "Every step uses the same parameters.")
      .add("ddp-gradient-as-bucket-view", &Args::ddp_gradient_as_bucket_view,
           "Make gradients views of the buckets, which saves a copy.")
      .add("split-batches", &Args::split_batches, "The batch size is that of all ranks together.")
      .add("non-blocking", &Args::non_blocking,
           "Workers copy batches to CUDA devices, concurrently with the computation.");
}

Table make_table() {
  Table table("trainer", "Trains a model; options of lockstep::Trainer.");
  for (const auto add :
       {add_run, add_optimizer, add_precision, add_logging, add_evaluation, add_saving, add_data, add_ranks})
    add(table);
  table.grammar({.environment_prefix = "", .config_option = "config"});
  return table;
}

}  // namespace

const OptionTable<TrainingArguments>& training_argument_table() {
  static const auto table = make_table();
  return table;
}

}  // namespace lockstep
