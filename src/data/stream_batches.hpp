#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device_copy.hpp"
#include "lockstep/data/data_loader.hpp"
#include "stream_parts.hpp"

namespace lockstep {

/// Reads the batches of a rank's parts of a stream, by number: batch n is the next one of the part n % parts,
/// as PyTorch's workers take turns. Safe from several threads; batches of one part are read one after the
/// other.
class StreamBatches {
 public:
  /// `completes`: a part's last batch is completed with its first samples.
  StreamBatches(std::shared_ptr<const StreamDataset> stream, const DataLoaderOptions& options,
                std::int64_t epoch, PartPositions parts, bool completes);

  /// Their positions when the pass began.
  const PartPositions& parts() const noexcept { return begin_; }

  /// The next batch of its part. Every number is read once, each after the smaller ones of its part have been
  /// asked for. Throws DataError as DataLoader says.
  PrefetchedBatch read(std::int64_t number);

  /// What read(number) has found; once.
  struct Outcome {
    /// False: the part had come to its end, and there is no batch.
    bool has_batch = false;
    /// Where the part is behind the batch.
    PartPosition after = {};
  };
  Outcome take_outcome(std::int64_t number);

  /// `count` rows from the beginning of the rank's first part that has any, from its start again where it has
  /// fewer, none of them valid; nothing where no part has any. They are read once and kept. `count` is always
  /// the same.
  std::optional<PrefetchedBatch> repetition(std::int64_t count);

  /// What the loader's user gets.
  Batch finish(PrefetchedBatch batch) const { return copy_.finish(std::move(batch)); }

 private:
  struct Part {
    std::mutex reading;
    std::condition_variable turned;
    std::int64_t turn = 0;
    PartPosition position = {};
    std::unique_ptr<StreamReader> reader = nullptr;
  };

  PrefetchedBatch read_part(Part& part, bool& has_batch) const;
  std::vector<Example> first_samples(const StreamPart& part, std::int64_t count) const;
  std::vector<Example> first_samples_of_any(std::int64_t count) const;
  PrefetchedBatch made(std::vector<Example> samples, std::int64_t valid) const;
  [[noreturn]] void fail(const StreamPart& part, const char* text) const;

  std::shared_ptr<const StreamDataset> stream_;
  DataLoaderOptions options_;
  std::int64_t epoch_;
  PartPositions begin_;
  bool completes_;
  DeviceCopy copy_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::mutex mutex_;  // guards outcomes_
  std::map<std::int64_t, Outcome> outcomes_;
  /// Of repetition().
  std::vector<Example> repeated_;
};

}  // namespace lockstep
