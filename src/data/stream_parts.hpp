#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/data/stream_dataset.hpp"

namespace lockstep {

/// How far one part of a stream has been read.
struct PartPosition {
  StreamPart part = {};
  /// StreamReader::state_dict(); empty: the beginning.
  std::string state = {};
  bool ended = false;
};

/// A rank's parts in the order in which their next batches come. Empty: the epoch's beginning.
using PartPositions = std::vector<PartPosition>;

/// The parts of a rank when an epoch begins: one for each worker.
PartPositions first_positions(int num_replicas, int rank, int num_workers);

/// Rank `rank`'s entry in DataLoaderState::parts.
std::string parts_to_text(const PartPositions& parts, int num_replicas, int rank);

/// The parts of rank `rank` of `num_replicas` out of the entries of all ranks that saved them, or of this one
/// alone; some ranks may get one more than others. Throws UsageError where they have to get `equally` many
/// and do not, and for what is no such text.
PartPositions deal_parts(std::span<const std::string> entries, int num_replicas, int rank, bool equally);

}  // namespace lockstep
