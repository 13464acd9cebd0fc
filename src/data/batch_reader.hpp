#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/batch_plan.hpp"
#include "data/device_copy.hpp"
#include "lockstep/data/data_loader.hpp"

namespace lockstep {

/// Reads the numbered batches of one pass. Thread-safe.
class BatchReader {
 public:
  /// `first_batch` is the epoch's number of the plan's first batch, for error messages. With `own_batches`,
  /// the epoch's batches of a batch sampler, the plan's indices are indices into them.
  BatchReader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options, std::int64_t epoch,
              std::int64_t first_batch, BatchPlan plan, std::vector<std::vector<std::int64_t>> own_batches);

  /// The batches of the pass.
  const BatchPlan& plan() const noexcept { return plan_; }

  /// Reads batch `number`, counted from 0 within the plan. Throws DataError as described for DataLoader.
  PrefetchedBatch read(std::int64_t number) const;

  /// The batch for the loader's user.
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
