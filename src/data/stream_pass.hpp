#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/data/sharding.hpp"
#include "prefetcher.hpp"
#include "stream_batches.hpp"

namespace lockstep {

/// The batches of one pass over a stream.
class StreamPass {
 public:
  virtual ~StreamPass() = default;
  /// The next batch; nothing after the last one.
  virtual std::optional<Batch> next() = 0;
  /// How many batches come behind the one that next() gave last, where the end is in sight.
  virtual std::optional<std::int64_t> left() const = 0;
  /// Where the parts are behind that batch.
  virtual PartPositions parts() const = 0;
};

/// What a pass over a stream depends on.
struct StreamPassOptions {
  std::shared_ptr<const StreamDataset> stream;
  DataLoaderOptions options;
  BatchPlanOptions plan;
  /// The ranks that it is divided between; needed for even_batches and dispatch_batches.
  std::optional<ProcessGroup> group;
  std::int64_t epoch = 0;
  /// Where it begins; empty: at the beginning.
  PartPositions parts;
  /// How many batches are read ahead at least, to see the end: 1 or more.
  std::int64_t look_ahead = 1;
};

/// Begins a pass; `workers`, which may be null, read ahead. *Collective* over the group where there is one,
/// as next() is.
std::unique_ptr<StreamPass> open_stream(StreamPassOptions options, Prefetcher* workers);

}  // namespace lockstep
