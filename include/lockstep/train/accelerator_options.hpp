#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/sharding.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/train/fsdp_plugin.hpp"
#include "lockstep/train/mixed_precision.hpp"

namespace lockstep {

/// How Accelerator::prepare() divides data loaders; names and meaning are those of Hugging Face Accelerate's
/// class.
///
/// The orders are those of Accelerate's `use_seedable_sampler=True`, always: epoch e of a shuffled loader is
/// torch.randperm with the seed `seed + e`, so that a run can go on from a checkpoint.
struct DataLoaderConfiguration {
  /// The loader's batch size is that of all processes together; otherwise it counts for each process.
  bool split_batches = false;

  /// Complete the last round with samples from the start, so that all processes see equally many, equal
  /// batches. Such rows are marked in Batch::valid, and gather_for_metrics() leaves them out.
  bool even_batches = true;

  /// by_sample is PyTorch's DistributedSampler, by_batch Accelerate's own way: batches that are gathered are
  /// then in the order of the data set.
  Sharding sharding = Sharding::by_sample;

  /// ShardingOptions::dispatch_batches: rank 0 reads streams for all. Accelerate does so by default; here
  /// each rank reads its own files by default.
  bool dispatch_batches = false;

  /// The seed of the orders, in place of each loader's own.
  std::optional<std::uint64_t> data_seed = std::nullopt;

  /// Workers copy the batches to a CUDA device from page-locked memory, beside the computation: see
  /// DataLoaderOptions::non_blocking. A loader that asks for it itself gets it anyway.
  bool non_blocking = false;
};

/// Gradient accumulation beyond the number of steps. Names and meaning as in Accelerate's
/// GradientAccumulationPlugin, but where noted.
struct GradientAccumulationOptions {
  /// Samples of all ranks for one optimizer step; then gradient_accumulation_steps follows from the batch
  /// size of the first loader that is prepared and the number of ranks, so that a job computes the same on
  /// another number of ranks. UsageError where it does not divide. 0: gradient_accumulation_steps counts.
  std::int64_t global_batch_size = 0;

  /// The last batch of a loader ends the window, which may be shorter then; its losses are divided by its
  /// true length (Accelerate divides by the full one and so gives the last step too small a gradient).
  bool sync_with_dataloader = true;

  /// A weighted sum is divided by the weights of all ranks. Off: by the rank's own, and the ranks are
  /// averaged, so that a rank with few tokens counts as much as one with many.
  bool weights_of_all_ranks = true;

  /// Average the gradients of every micro-batch: slower, as it sends gradient_accumulation_steps times as
  /// much.
  bool sync_each_batch = false;
};

/// What an Accelerator is made with: `Accelerator({.gradient_accumulation_steps = 4})`.
struct AcceleratorOptions {
  /// In what numbers prepared models compute.
  MixedPrecision mixed_precision = MixedPrecision::no;

  /// Micro-batches of one rank for one optimizer step.
  std::int64_t gradient_accumulation_steps = 1;

  /// "auto": a CUDA device where this process can use one, else the CPU. "cuda" is the one numbered by the
  /// local rank; "cpu" and "cuda:1" mean what they say.
  std::string device = "auto";

  /// What carries the tensors between the ranks.
  CommBackend backend = CommBackend::automatic;

  /// After this long a collective fails instead of waiting on.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);

  /// How long the processes may take to find each other at the start.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);

  /// Keep large blocks of memory for the next step: see tune_malloc().
  bool tune_malloc = true;

  /// Only operations that always give the same bits, at the price of speed: see
  /// use_deterministic_operations(). Said here it holds from the first use of a GPU on.
  bool deterministic = false;

  /// Let CUDA devices multiply float32 matrices, and convolve, with 10 bits of mantissa: several times
  /// faster. Nothing: as LibTorch has it. Holds for the whole process, as the next one.
  std::optional<bool> tf32 = std::nullopt;

  /// cuDNN measures its convolutions for each new shape and takes the fastest (torch.backends.cudnn
  /// .benchmark): for inputs of few shapes. Not with `deterministic` (UsageError).
  bool cudnn_benchmark = false;

  /// prepare() lays a model's weights of four dimensions out with the channels last
  /// (torch.channels_last), and so its convolutions: faster with half-wide numbers on GPUs and with oneDNN
  /// on CPUs.
  bool channels_last = false;

  /// On a CPU where oneDNN is the faster one, large products of matrices go there: see use_onednn_matmul().
  bool onednn_matmul = true;

  /// For the models that prepare() wraps. Gradients lie in the communication's buckets, which saves two
  /// copies a step; prepared optimizers clear them rightly. (PyTorch's default is false, as its own
  /// zero_grad(false) throws on such gradients.)
  DistributedDataParallelOptions ddp = {.gradient_as_bucket_view = true};

  /// Prepared models are fully sharded: `ddp` and `comm_hook` do not hold. See docs/fsdp.md.
  std::optional<FullyShardedDataParallelPlugin> fsdp_plugin = std::nullopt;

  GradientAccumulationOptions gradient_accumulation = {};

  /// For fp16.
  optim::GradScalerOptions grad_scaler = {};

  /// How prepared models average: "no" (plainly), "fp16", "bf16", "power_sgd" or "batched_power_sgd"; and
  /// what a PowerSGD hook's tensors travel as: "no", "fp16" or "bf16". Accelerate's names.
  std::string comm_hook = "no";
  std::string comm_wrapper = "no";

  /// After this long, a rank that waits at a named barrier says who is missing.
  std::chrono::milliseconds barrier_warning = std::chrono::seconds(30);

  /// For the loaders that prepare() divides.
  DataLoaderConfiguration dataloader_config = {};
};

}  // namespace lockstep
