#pragma once

#include <cstddef>
#include <span>

#include "shm/types.hpp"

namespace lockstep::shm {

using Buffers = std::span<void* const>;
using ConstBuffers = std::span<const void* const>;

/// A part of an all_to_all: memory and number of elements.
struct Part {
  void* data;
  std::size_t count;
};
using Parts = std::span<const Part>;

/// A collective with this rank's memory, as a value: made once, described by call_of(), and run by whatever
/// connects the ranks. It only points to the memory.
///
///     operation                       own           of_ranks
///     all_reduce, reduce, broadcast   in and out    -
///     reduce_scatter                  output        inputs
///     all_gather                      input         outputs
///     gather                          input         outputs, on the root alone
///     scatter                         output        inputs, on the root alone
///     all_to_all                      -             sent, received
///     barrier                         -             -
struct Collective {
  Operation operation = Operation::barrier;
  /// Of one rank's buffer. Of an all_to_all, the dtype alone.
  Elements elements{0, Dtype::bytes};
  Reduction reduction = Reduction::none;
  int root = -1;
  void* own = nullptr;
  /// One buffer per rank.
  Buffers of_ranks = {};
  /// Part r is sent to, or received from, rank r. Both sides of a pair must agree on its size.
  Parts sent = {};
  Parts received = {};
};

/// What all ranks must call alike.
inline Call call_of(const Collective& collective) {
  return call_of(collective.operation, collective.elements, collective.reduction, collective.root);
}

}  // namespace lockstep::shm
