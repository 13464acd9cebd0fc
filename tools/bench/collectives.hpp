#pragma once

#include <cstdint>
#include <string>

#include "bench_options.hpp"
#include "lockstep/comm/process_group.hpp"

namespace bench {

/// A collective at one size: a line of the table.
struct Measurement {
  std::string collective;
  /// Of the elements, and how they are reduced: "none" where nothing is moved or reduced.
  std::string type;
  std::string redop;
  /// Of the larger side.
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  /// Of one round, on the slowest rank.
  double seconds = 0;
  /// Bytes by time, and what a link carried: as nccl-tests counts it, 2(n-1)/n times that for an all-reduce,
  /// (n-1)/n times where each rank has a part.
  double algorithm_bandwidth = 0;
  double bus_bandwidth = 0;
  /// Elements with a wrong value, over all ranks and on this one; -1: not checked, or nothing to check.
  std::int64_t wrong = -1;
  std::int64_t wrong_here = -1;
};

/// Times a collective and checks its result, at the size nearest to `bytes` that has whole parts for every
/// rank. *Collective*.
Measurement measure(const std::string& collective, const lockstep::ProcessGroup& group,
                    const Options& options, std::int64_t bytes);

/// Throws Error that names the rank, the collective and the size where a result is wrong on any rank.
void require_right(const Measurement& measurement, int rank);

/// False for one that moves no elements: it is timed once, and has no bandwidth and nothing to be wrong.
bool has_size(const std::string& collective);

}  // namespace bench
