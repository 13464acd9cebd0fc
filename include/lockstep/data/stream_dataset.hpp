#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// The part of a stream that one worker of one rank reads. Together the parts of all workers of all ranks are
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
  /// Where the pass is: one that is opened with this state goes on with the next sample.
  virtual std::string state_dict() const = 0;
};

/// Samples that come one after the other, for a DataLoader: what torch.utils.data.IterableDataset is in
/// Python. IterableTensorDataset makes one of an IterableDataset; derive from it for other sources.
///
/// Everything is *Local*; open() may be called from several threads at once.
class StreamDataset {
 public:
  virtual ~StreamDataset() = default;

  /// Begins a pass over a part, in the order of the epoch (from 0); with a `state` of the same part and epoch
  /// that is not empty, from there on. A part is opened once more where its first samples are repeated to
  /// complete a batch. Throws UsageError for a state of something else.
  virtual std::unique_ptr<StreamReader> open(const StreamPart& part, std::int64_t epoch,
                                             const std::string& state) const = 0;

  /// The samples of all parts together, where that is known.
  virtual std::optional<std::int64_t> size() const { return std::nullopt; }

  /// What tells this stream from others, the same on every rank and in every run: a loader refuses the
  /// position of another one.
  virtual std::string fingerprint() const = 0;

 protected:
  StreamDataset() = default;
  StreamDataset(const StreamDataset&) = default;
  StreamDataset(StreamDataset&&) = default;
  StreamDataset& operator=(const StreamDataset&) = default;
  StreamDataset& operator=(StreamDataset&&) = default;
};

}  // namespace lockstep
