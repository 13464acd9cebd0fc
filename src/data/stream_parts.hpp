#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/data/stream_dataset.hpp"

namespace lockstep {

/// The read position of one part of a stream.
struct PartPosition {
  StreamPart part = {};
  /// StreamReader::state_dict(); empty: the beginning.
  std::string state = {};
  bool ended = false;
};

/// A rank's parts in the order of their next batches. Empty: the epoch's beginning.
using PartPositions = std::vector<PartPosition>;

/// A rank's parts at the beginning of an epoch: one per worker.
PartPositions first_positions(int num_replicas, int rank, int num_workers);

/// Rank `rank`'s entry in DataLoaderState::parts.
std::string parts_to_text(const PartPositions& parts, int num_replicas, int rank);

/// Distributes the parts in the entries of all ranks that saved them, or of this rank alone, and returns
/// those of rank `rank` of `num_replicas`; some ranks may get one more than others. Throws UsageError if
/// `equally` is set and the parts cannot be distributed equally, and for text that is not such an entry.
PartPositions deal_parts(std::span<const std::string> entries, int num_replicas, int rank, bool equally);

}  // namespace lockstep
