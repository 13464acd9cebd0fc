#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "data/prefetcher.hpp"
#include "data/stream_batches.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/sharding.hpp"

namespace lockstep {

/// The batches of one pass over a stream.
class StreamPass {
 public:
  virtual ~StreamPass() = default;
  /// The next batch; nothing after the last one.
  virtual std::optional<Batch> next() = 0;
  /// The number of batches after the last one that next() returned, if the end is known.
  virtual std::optional<std::int64_t> left() const = 0;
  /// The positions of the parts after that batch.
  virtual PartPositions parts() const = 0;
};

/// The parameters of a pass over a stream.
struct StreamPassOptions {
  std::shared_ptr<const StreamDataset> stream;
  DataLoaderOptions options;
  BatchPlanOptions plan;
  /// The ranks that share the stream; required for even_batches and dispatch_batches.
  std::optional<ProcessGroup> group;
  std::int64_t epoch = 0;
  /// The start positions; empty: the beginning.
  PartPositions parts;
  /// Minimum number of batches that are read ahead, to detect the end: 1 or more.
  std::int64_t look_ahead = 1;
};

/// Begins a pass; `workers`, which may be null, read ahead. *Collective* over the group if there is one, like
/// next().
std::unique_ptr<StreamPass> open_stream(StreamPassOptions options, Prefetcher* workers);

}  // namespace lockstep
