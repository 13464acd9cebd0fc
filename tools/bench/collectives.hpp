#pragma once

#include <cstdint>
#include <string>

#include "bench_options.hpp"
#include "lockstep/comm/process_group.hpp"

namespace bench {

/// A collective at one size: one line of the table.
struct Measurement {
  std::string collective;
  /// Element type and reduction: "none" if no data are transferred or reduced.
  std::string type;
  std::string redop;
  /// Size of the larger side.
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  /// Time of one round on the slowest rank.
  double seconds = 0;
  /// Bytes per second, and bytes per second of a link, computed as in nccl-tests: 2(n-1)/n times as much for
  /// an all-reduce, (n-1)/n times if each rank has a part.
  double algorithm_bandwidth = 0;
  double bus_bandwidth = 0;
  /// Number of wrong elements, on all ranks and on this one; -1: not checked, or nothing to check.
  std::int64_t wrong = -1;
  std::int64_t wrong_here = -1;
};

/// Times a collective and checks its result. `bytes` is rounded down to equal parts for all ranks, at least
/// one element each. *Collective*.
Measurement measure(const std::string& collective, const lockstep::ProcessGroup& group,
                    const Options& options, std::int64_t bytes);

/// Throws Error that names the rank, the collective and the size if a result is wrong on any rank.
void require_right(const Measurement& measurement, int rank);

/// False for collectives without data: they are timed once, and have no bandwidth and no result.
bool has_size(const std::string& collective);

}  // namespace bench
