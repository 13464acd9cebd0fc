#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device_copy.hpp"
#include "lockstep/data/data_loader.hpp"

namespace lockstep {

/// Reads the numbered batches of one pass. Safe from several threads.
class BatchReader {
 public:
  /// `first_batch` is the number within the epoch of the plan's first batch, for error texts. With
  /// `own_batches`, the epoch's from a batch sampler, the plan's indices are numbers of them.
  BatchReader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options, std::int64_t epoch,
              std::int64_t first_batch, BatchPlan plan, std::vector<std::vector<std::int64_t>> own_batches);

  /// The batches that there are.
  const BatchPlan& plan() const noexcept { return plan_; }

  /// Batch `number`, counted from 0 within the plan, as its reader sends it. Throws DataError as DataLoader
  /// says.
  PrefetchedBatch read(std::int64_t number) const;

  /// What the loader's user gets.
  Batch finish(PrefetchedBatch batch) const { return copy_.finish(std::move(batch)); }

 private:
  std::span<const std::int64_t> indices(std::int64_t number) const;
  std::int64_t valid_rows(std::int64_t number) const;
  Batch load(std::int64_t number) const;
  Batch collated(std::span<const std::int64_t> indices, std::span<const SampleContext> contexts) const;
  [[noreturn]] void fail(std::int64_t number, const char* text) const;

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::int64_t epoch_;
  std::int64_t first_batch_;
  BatchPlan plan_;
  std::vector<std::vector<std::int64_t>> own_batches_;
  DeviceCopy copy_;
};

}  // namespace lockstep
