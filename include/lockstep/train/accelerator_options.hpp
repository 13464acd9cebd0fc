#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/sharding.hpp"
#include "lockstep/kernels/fused_kernels.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/train/fsdp_plugin.hpp"
#include "lockstep/train/mixed_precision.hpp"

namespace lockstep {

/// The device that AcceleratorOptions::device means for a process of this local rank. *Local*. Throws
/// UsageError if the name is not a device, or if the CUDA device does not exist.
at::Device choose_device(const std::string& name, int local_rank);

/// How Accelerator::prepare() shards data loaders. Names and meaning are those of Hugging Face Accelerate's
/// class.
///
/// Orders are always those of Accelerate's `use_seedable_sampler=True`: epoch e of a shuffled loader is
/// torch.randperm with the seed `seed + e`, so that a run can resume from a checkpoint.
struct DataLoaderConfiguration {
  /// The loader's batch size is that of all processes together; otherwise it is per process.
  bool split_batches = false;

  /// Complete the last round with samples from the start, so that all processes get the same number of
  /// batches of the same size. Batch::valid marks these rows, and gather_for_metrics() drops them.
  bool even_batches = true;

  /// by_sample is PyTorch's DistributedSampler, by_batch Accelerate's BatchSamplerShard: gathered batches are
  /// then in the order of the data set.
  Sharding sharding = Sharding::by_sample;

  /// ShardingOptions::dispatch_batches: rank 0 reads streams for all ranks. Accelerate does so by default;
  /// here each rank reads its own files by default.
  bool dispatch_batches = false;

  /// The seed of the orders; replaces the seed of each loader.
  std::optional<std::uint64_t> data_seed = std::nullopt;

  /// Workers copy batches to a CUDA device from page-locked memory, in parallel with the computation: see
  /// DataLoaderOptions::non_blocking. A loader that sets it itself keeps it.
  bool non_blocking = false;
};

/// Gradient accumulation beyond the number of steps. Names and meaning are those of Accelerate's
/// GradientAccumulationPlugin unless noted.
struct GradientAccumulationOptions {
  /// Samples of all ranks per optimizer step. gradient_accumulation_steps then follows from the number of
  /// ranks and the batch size of the first loader that is prepared, so that a job computes the same on
  /// another number of ranks. UsageError if it is not a whole number. 0: gradient_accumulation_steps is used.
  std::int64_t global_batch_size = 0;

  /// The last batch of a loader ends the window, which may then be shorter. Its losses are divided by its
  /// actual length (Accelerate divides by the full length, so that the last step's gradient is too small).
  bool sync_with_dataloader = true;

  /// A weighted sum is divided by the weights of all ranks. Off: by the rank's own weight, and the ranks are
  /// averaged, so that a rank with few tokens counts as much as one with many.
  bool weights_of_all_ranks = true;

  /// Average the gradients of every micro-batch. Slower: gradient_accumulation_steps times the communication.
  bool sync_each_batch = false;
};

/// The options of an Accelerator: `Accelerator({.gradient_accumulation_steps = 4})`.
struct AcceleratorOptions {
  /// The dtypes in which prepared models compute.
  MixedPrecision mixed_precision = MixedPrecision::no;

  /// Micro-batches of one rank per optimizer step.
  std::int64_t gradient_accumulation_steps = 1;

  /// "auto": a CUDA device if this process can use one, otherwise the CPU. "cuda": the device with the number
  /// of the local rank. "cpu" and "cuda:1" name one device.
  std::string device = "auto";

  /// The backend for communication between ranks.
  CommBackend backend = CommBackend::automatic;

  /// Time after which a collective fails.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);

  /// Time that the processes have to find each other at startup.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);

  /// Keep large blocks of memory for the next step: see tune_malloc().
  bool tune_malloc = true;

  /// Only operations that always give the same bits, which are slower: see use_deterministic_operations().
  /// Set here, it takes effect before the first use of a GPU.
  bool deterministic = false;

  /// Allow CUDA devices to use TF32 (10 bits of mantissa) for float32 matrix products and convolutions:
  /// several times faster. Unset: LibTorch's setting. This and the next option apply to the whole process.
  std::optional<bool> tf32 = std::nullopt;

  /// cuDNN measures its convolutions for each new shape and uses the fastest
  /// (torch.backends.cudnn.benchmark): for inputs of few shapes. Not with `deterministic` (UsageError).
  bool cudnn_benchmark = false;

  /// Whether the models of lockstep::models use Lockstep's own CUDA kernels; off: LibTorch's operations, with
  /// their bits. For the whole process.
  FusedKernels fused_kernels = FusedKernels::automatic;

  /// prepare() stores a model's four-dimensional weights in torch.channels_last layout, so that convolutions
  /// use it: faster with float16 and bfloat16 on GPUs and with oneDNN on CPUs.
  bool channels_last = false;

  /// On CPUs where oneDNN is faster, use it for large matrix products: see use_onednn_matmul().
  bool onednn_matmul = true;

  /// For the models that prepare() wraps. Gradients are views of the communication buckets, which saves two
  /// copies per step; prepared optimizers clear them correctly. (PyTorch's default is false, because its own
  /// zero_grad(false) throws on such gradients.)
  DistributedDataParallelOptions ddp = {.gradient_as_bucket_view = true};

  /// Prepared models are fully sharded; `ddp` and `comm_hook` are not used. See docs/fsdp.md.
  std::optional<FullyShardedDataParallelPlugin> fsdp_plugin = std::nullopt;

  GradientAccumulationOptions gradient_accumulation = {};

  /// For fp16.
  optim::GradScalerOptions grad_scaler = {};

  /// How prepared models average gradients: "no" (plain all-reduce), "fp16", "bf16", "power_sgd" or
  /// "batched_power_sgd"; and the dtype in which a PowerSGD hook sends its tensors: "no", "fp16" or "bf16".
  /// Accelerate's names.
  std::string comm_hook = "no";
  std::string comm_wrapper = "no";

  /// Time after which a rank that waits at a named barrier reports the missing ranks.
  std::chrono::milliseconds barrier_warning = std::chrono::seconds(30);

  /// For the loaders that prepare() shards.
  DataLoaderConfiguration dataloader_config = {};
};

}  // namespace lockstep
