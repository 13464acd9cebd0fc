#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "data/device_copy.hpp"
#include "data/stream_parts.hpp"
#include "lockstep/data/data_loader.hpp"

namespace lockstep {

/// Reads the batches of a rank's parts of a stream, by number: batch n is the next one of part n % parts,
/// like PyTorch's workers in turn. Thread-safe; batches of one part are read one after the other.
class StreamBatches {
 public:
  /// `completes`: complete a part's last batch with its first samples.
  StreamBatches(std::shared_ptr<const StreamDataset> stream, const DataLoaderOptions& options,
                std::int64_t epoch, PartPositions parts, bool completes);

  /// The parts' positions when the pass began.
  const PartPositions& parts() const noexcept { return begin_; }

  /// The next batch of its part. Every number is read once; the smaller numbers of the same part must have
  /// been requested before. Throws DataError as described for DataLoader.
  PrefetchedBatch read(std::int64_t number);

  /// The outcome of read(number); may be taken once.
  struct Outcome {
    /// False if the part had ended, and there is no batch.
    bool has_batch = false;
    /// The position of the part after the batch.
    PartPosition after = {};
  };
  Outcome take_outcome(std::int64_t number);

  /// The first `count` rows of the rank's first nonempty part, repeated if it has fewer, all of them not
  /// valid; nothing if all parts are empty. They are read once and kept; `count` must always be the same.
  std::optional<PrefetchedBatch> repetition(std::int64_t count);

  /// The batch for the loader's user.
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
  PrefetchedBatch make_batch(std::vector<Example> samples, std::int64_t valid) const;
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
  /// For repetition().
  std::vector<Example> repeated_;
};

}  // namespace lockstep
