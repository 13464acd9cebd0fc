#include "lockstep/train/training_arguments.hpp"

namespace lockstep {
namespace {

using Args = TrainingArguments;
using Table = OptionTable<Args>;

const std::vector<std::string> kSchedules{"linear",
                                          "cosine",
                                          "cosine_with_restarts",
                                          "cosine_with_min_lr",
                                          "cosine_warmup_with_min_lr",
                                          "polynomial",
                                          "constant",
                                          "constant_with_warmup",
                                          "warmup_stable_decay",
                                          "inverse_sqrt",
                                          "reduce_lr_on_plateau"};
const std::vector<std::string> kLevels{"passive", "debug", "info", "warning", "error"};

void add_run(Table& table) {
  table.section("run")
      .add("output-dir", &Args::output_dir, "Folder for checkpoints, state and logs; made where needed.",
           not_empty())
      .add("config", &Args::config, "JSON file with any of these options; flags beat it.", metavar("FILE"))
      .add("num-train-epochs", &Args::num_train_epochs, "Passes over the training data.", more_than(0))
      .add("max-steps", &Args::max_steps, "Optimizer steps; above 0 it replaces --num-train-epochs.",
           at_least(-1))
      .add("max-duration", &Args::max_duration,
           "Length of the training in any unit, in place of epochs and steps: 3ep, 500ba, 100000sp, 3600sec "
           "(of training, over all restarts).")
      .add("per-device-train-batch-size", &Args::per_device_train_batch_size,
           "Samples of one rank in a micro-batch.", at_least(1))
      .add("per-device-eval-batch-size", &Args::per_device_eval_batch_size,
           "Samples of one rank in a batch of an evaluation.", at_least(1))
      .add("gradient-accumulation-steps", &Args::gradient_accumulation_steps,
           "Micro-batches for one optimizer step.", at_least(1))
      .add("global-batch-size", &Args::global_batch_size,
           "Samples of all ranks for one optimizer step, from which the accumulation steps follow; 0: not "
           "used.",
           at_least(0))
      .add("seed", &Args::seed, "Seed of all random numbers.")
      .add("data-seed", &Args::data_seed, "Seed of the order of the data, where it is to be another.")
      .add("full-determinism", &Args::full_determinism, "Only operations that always give the same bits.")
      .add("resume-from-checkpoint", &Args::resume_from_checkpoint,
           "auto: from the newest whole checkpoint in --output-dir, if there is one; never; or a path.",
           not_empty())
      .add("eval-on-start", &Args::eval_on_start, "Evaluate before the first step.")
      .add("fast-dev-run", &Args::fast_dev_run, "Only so many steps, to see that a program works; 0: all.",
           at_least(0));
}

void add_optimizer(Table& table) {
  table.section("optimizer")
      .add("learning-rate", &Args::learning_rate, "The full learning rate.", at_least(0))
      .add("weight-decay", &Args::weight_decay, "Weight decay; not on biases and norms.", at_least(0))
      .add("adam-beta1", &Args::adam_beta1, "Decay of the mean of gradients.", at_least(0), less_than(1))
      .add("adam-beta2", &Args::adam_beta2, "Decay of the mean of squares.", at_least(0), less_than(1))
      .add("adam-epsilon", &Args::adam_epsilon, "Added to the root of the mean of squares.", at_least(0))
      .add("average-tokens-across-devices", &Args::average_tokens_across_devices,
           "Divide a sum over tokens by their number on all ranks, not on this one alone.")
      .add("max-grad-norm", &Args::max_grad_norm, "Norm that gradients are scaled down to; 0: not.",
           at_least(0))
      .add("optim", &Args::optim, "The optimizer.",
           one_of({"adamw_torch_fused", "adamw_torch", "adam", "sgd", "adagrad", "rmsprop"}))
      .add("sgd-momentum", &Args::sgd_momentum, "Momentum of sgd.", at_least(0), less_than(1))
      .add("label-smoothing-factor", &Args::label_smoothing_factor,
           "Share of probability that labels give to other classes.", at_least(0), less_than(1))
      .add("lr-scheduler-type", &Args::lr_scheduler_type, "How the learning rate goes.", one_of(kSchedules))
      .add("lr-scheduler-kwargs", &Args::lr_scheduler_kwargs,
           "The schedule's own numbers as a JSON object, as in {\"num_cycles\": 2}, by transformers' names. "
           "The cosines: "
           "num_cycles; cosine_with_min_lr and cosine_warmup_with_min_lr: min_lr or min_lr_rate (a share), "
           "the latter "
           "warmup_lr_rate; polynomial: lr_end, power; inverse_sqrt: timescale; warmup_stable_decay: "
           "num_decay_steps, "
           "num_stable_steps, min_lr_ratio, warmup_type, decay_type, num_cycles; reduce_lr_on_plateau: mode, "
           "factor, "
           "patience, threshold, threshold_mode, cooldown, min_lr, eps.",
           metavar("JSON"))
      .add("warmup-steps", &Args::warmup_steps, "Steps, or a share, in which the rate grows from 0.");
}

void add_precision(Table& table) {
  table.section("precision")
      .add("bf16", &Args::bf16, "Mixed precision with bfloat16.")
      .add("fp16", &Args::fp16, "Mixed precision with float16, on CUDA devices.")
      .add("bf16-full-eval", &Args::bf16_full_eval, "Evaluate with the model in bfloat16.")
      .add("fp16-full-eval", &Args::fp16_full_eval, "Evaluate with the model in float16.")
      .add("tf32", &Args::tf32, "Multiply float32 matrices with fewer bits on CUDA devices.")
      .add("gradient-checkpointing", &Args::gradient_checkpointing,
           "Keep no activations inside the model's layers: backward computes them again.")
      .add("fsdp", &Args::fsdp,
           "Divide weights, gradients and the optimizer's state over the ranks: full_shard (ZeRO-3) or "
           "shard_grad_op (ZeRO-2), or over those of each node: hybrid_shard, hybrid_shard_zero2; empty: no.")
      .add("fsdp-config", &Args::fsdp_config,
           "How, as a JSON object or the path of one: reshard_after_forward, backward_prefetch (backward_pre "
           "or no_prefetch), activation_checkpointing, transformer_layer_cls_to_wrap, fsdp_version (2).",
           metavar("JSON"));
}

void add_logging(Table& table) {
  table.section("logging")
      .add("logging-strategy", &Args::logging_strategy, "When to log.")
      .add("logging-steps", &Args::logging_steps, "Steps between logs.", more_than(0))
      .add("logging-first-step", &Args::logging_first_step, "Log the first step too.")
      .add("logging-nan-inf-filter", &Args::logging_nan_inf_filter,
           "Leave losses that are not finite out of the logged mean, with a warning.")
      .add("log-level", &Args::log_level, "What rank 0 says.", one_of(kLevels))
      .add("log-level-replica", &Args::log_level_replica, "What the other ranks say.", one_of(kLevels))
      .add("log-on-each-node", &Args::log_on_each_node,
           "The first rank of each node speaks as rank 0 does; without it rank 0 alone.")
      .add("disable-tqdm", &Args::disable_tqdm, "No progress bar.")
      .add("report-to", &Args::report_to, "Trackers.", one_of({"tensorboard", "jsonl", "csv"}))
      .add("logging-dir", &Args::logging_dir, "Folder of their files; without it runs in --output-dir.")
      .add("run-name", &Args::run_name, "Name of the run: a folder in --logging-dir.");
}

void add_evaluation(Table& table) {
  table.section("evaluation")
      .add("eval-strategy", &Args::eval_strategy, "When to evaluate.")
      .add("eval-steps", &Args::eval_steps, "Steps between evaluations; without it --logging-steps.",
           more_than(0))
      .add("eval-delay", &Args::eval_delay, "No evaluation before so many steps, or epochs (2ep).")
      .add("prediction-loss-only", &Args::prediction_loss_only, "Compute the loss and no metrics.")
      .add("batch-eval-metrics", &Args::batch_eval_metrics,
           "Metrics see batch after batch; without it all samples at once, on rank 0.")
      .add("eval-accumulation-steps", &Args::eval_accumulation_steps,
           "Batches whose outputs stay on the device before they are copied to the host; 0: each at once.",
           at_least(0))
      .add("limit-train-batches", &Args::limit_train_batches,
           "No more batches of each rank in an epoch; 0: all.", at_least(0))
      .add("limit-eval-batches", &Args::limit_eval_batches,
           "No more batches of each rank in an evaluation; 0: all.", at_least(0));
}

void add_saving(Table& table) {
  table.section("checkpoints")
      .add("save-strategy", &Args::save_strategy, "When to write checkpoints.")
      .add("save-steps", &Args::save_steps, "Steps between checkpoints.", more_than(0))
      .add("save-total-limit", &Args::save_total_limit,
           "Checkpoints kept at most; the newest and the best always stay. 0: all.", at_least(0))
      .add("save-only-model", &Args::save_only_model, "Only weights, which cannot be resumed from.")
      .add("save-on-each-node", &Args::save_on_each_node, "For an --output-dir on local disks.")
      .add("async-save", &Args::async_save, "Write in a thread, while training goes on.")
      .add("load-best-model-at-end", &Args::load_best_model_at_end,
           "Go back to the weights of the best evaluation at the end.")
      .add("metric-for-best-model", &Args::metric_for_best_model,
           "The metric that says which is best; eval_ may be left out.")
      .add("greater-is-better", &Args::greater_is_better,
           "Whether more of it is better; without it, unless its name ends in loss.")
      .add("ignore-data-skip", &Args::ignore_data_skip, "Resume with the first batch of the epoch.")
      .add("stop-at-sigterm", &Args::stop_at_sigterm,
           "SIGTERM stops the training with a checkpoint, as SIGUSR1 does, and exit code 85.");
}

void add_data(Table& table) {
  table.section("data")
      .add("dataloader-drop-last", &Args::dataloader_drop_last, "Leave out the last, smaller batch.")
      .add("dataloader-num-workers", &Args::dataloader_num_workers, "Threads that read ahead.", at_least(0))
      .add("dataloader-pin-memory", &Args::dataloader_pin_memory,
           "Page-locked memory for copies to CUDA devices.")
      .add("dataloader-persistent-workers", &Args::dataloader_persistent_workers,
           "Threads live from epoch to epoch.")
      .add("dataloader-prefetch-factor", &Args::dataloader_prefetch_factor,
           "Batches read ahead by each thread.", at_least(1))
      .add("train-sampling-strategy", &Args::train_sampling_strategy, "The order of the samples.")
      .add("length-column-name", &Args::length_column_name,
           "The tensor whose length counts for group_by_length.", not_empty());
}

void add_ranks(Table& table) {
  table.section("machine")
      .add("device", &Args::device, "auto, cpu, cuda, or one device as in cuda:0.", not_empty())
      .add("ddp-backend", &Args::ddp_backend, "What carries gradients between ranks.",
           one_of({"auto", "shm", "gloo", "nccl"}))
      .add("ddp-timeout", &Args::ddp_timeout, "Seconds after which a rank that waits gives up.", at_least(1))
      .add("ddp-find-unused-parameters", &Args::ddp_find_unused_parameters,
           "Look for parameters that took no part in a step.")
      .add("ddp-bucket-cap-mb", &Args::ddp_bucket_cap_mb, "MiB of gradients in a bucket.", more_than(0))
      .add("ddp-broadcast-buffers", &Args::ddp_broadcast_buffers,
           "Copy rank 0's buffers to the others before each step.")
      .add("ddp-static-graph", &Args::ddp_static_graph, "Every step uses the same parameters.")
      .add("ddp-gradient-as-bucket-view", &Args::ddp_gradient_as_bucket_view,
           "Gradients are views of the buckets: saves their copy.")
      .add("split-batches", &Args::split_batches, "The batch size is that of all ranks together.")
      .add("non-blocking", &Args::non_blocking,
           "Workers copy batches to CUDA devices, beside the computation.");
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
