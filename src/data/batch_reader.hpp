#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/data_loader.hpp"

namespace lockstep {

/// Reads the numbered batches of one pass. Safe from several threads.
class BatchReader {
 public:
  /// `order` holds the indices of the pass; it is cut into batches from its beginning. `first_batch` is the
  /// number within the epoch of the pass's first batch, for error texts.
  BatchReader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options, std::int64_t epoch,
              std::int64_t first_batch, std::vector<std::int64_t> order);

  /// The number of batches.
  std::int64_t count() const;

  /// Batch `number`, counted from 0 within the pass. Throws DataError as DataLoader says.
  Batch read(std::int64_t number) const;

 private:
  std::span<const std::int64_t> indices_of(std::int64_t number) const;
  Batch load(std::span<const std::int64_t> indices) const;
  Batch collated(std::span<const std::int64_t> indices, std::span<const SampleContext> contexts) const;
  [[noreturn]] void fail(std::int64_t number, const char* text) const;

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::int64_t epoch_;
  std::int64_t first_batch_;
  std::vector<std::int64_t> order_;
};

/// How many batches `samples` samples make.
std::int64_t batches_in(std::int64_t samples, std::int64_t batch_size, bool drop_last) noexcept;

}  // namespace lockstep
