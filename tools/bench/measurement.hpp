#pragma once

#include <cstdint>
#include <string>

#include "bench_options.hpp"
#include "lockstep/comm/process_group.hpp"

namespace bench {

/// A line of the table.
struct Measurement {
  std::string collective;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  /// Of one round, on the slowest rank.
  double seconds = 0;
  /// Bytes by time, and what a link carried.
  double algorithm_bandwidth = 0;
  double bus_bandwidth = 0;
  /// Elements with a wrong value, over all ranks; -1: not checked, or nothing to check.
  std::int64_t wrong = -1;
};

/// *Collective*.
Measurement measure(const std::string& collective, const lockstep::ProcessGroup& group,
                    const Options& options, std::int64_t bytes);

}  // namespace bench
