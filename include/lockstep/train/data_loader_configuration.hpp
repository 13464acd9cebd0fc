#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/data/sharding.hpp"

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

  /// The seed of the orders, in place of each loader's own.
  std::optional<std::uint64_t> data_seed = std::nullopt;

  /// Workers copy the batches to a CUDA device from page-locked memory, beside the computation: see
  /// DataLoaderOptions::non_blocking. A loader that asks for it itself gets it anyway.
  bool non_blocking = false;
};

}  // namespace lockstep
