#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// The part of a stream that one worker of one rank reads. The parts of all workers of all ranks together are
/// the stream, each row once.
struct StreamPart {
  /// 0 <= rank < num_replicas.
  int num_replicas = 1;
  int rank = 0;
  /// 0 <= worker < num_workers.
  int num_workers = 1;
  int worker = 0;
  friend bool operator==(const StreamPart&, const StreamPart&) = default;
};

/// One pass over a part. *Local*; one thread at a time.
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  /// The next sample; nothing after the last.
  virtual std::optional<Example> next() = 0;
  /// The position: a pass that is opened with this state continues with the next sample.
  virtual std::string state_dict() const = 0;
};

/// Samples in sequence for a DataLoader: the counterpart of torch.utils.data.IterableDataset in Python.
/// IterableTensorDataset adapts an IterableDataset; derive from this class for other sources.
///
/// Everything is *Local*; open() may be called from several threads at once.
class StreamDataset {
 public:
  virtual ~StreamDataset() = default;

  /// Begins a pass over a part, in the order of the epoch (from 0). A nonempty `state` of the same part and
  /// epoch resumes from there. A part is opened a second time if its first samples are repeated to complete a
  /// batch. Throws UsageError for a state of another part or epoch.
  virtual std::unique_ptr<StreamReader> open(const StreamPart& part, std::int64_t epoch,
                                             const std::string& state) const = 0;

  /// The number of samples of all parts together, if known.
  virtual std::optional<std::int64_t> size() const { return std::nullopt; }

  /// Identifies this stream; must be the same on every rank and in every run. A loader rejects the position
  /// of another stream.
  virtual std::string fingerprint() const = 0;

 protected:
  StreamDataset() = default;
  StreamDataset(const StreamDataset&) = default;
  StreamDataset(StreamDataset&&) = default;
  StreamDataset& operator=(const StreamDataset&) = default;
  StreamDataset& operator=(StreamDataset&&) = default;
};

}  // namespace lockstep
