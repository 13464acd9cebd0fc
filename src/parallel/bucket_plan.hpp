#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::parallel {

/// What it takes to average a bucket over the ranks: `seconds_per_call` and, for each byte,
/// `seconds_per_byte`.
struct CommunicationCost {
  double seconds_per_call = 0;
  double seconds_per_byte = 0;
};

/// A gradient: when backward has it ready, and its size.
struct GradientArrival {
  double seconds = 0;
  std::size_t bytes = 0;
};

/// Cuts gradients, in the order of their arrival, into buckets: how many go into each. A bucket is sent when
/// its last gradient has arrived and the bucket before it is through. Chosen is the plan whose last bucket is
/// through first; of those that are within a twentieth of the whole communication of it, the one with the
/// fewest buckets. No bucket has more than `most_bytes`, but for a gradient that alone has more; of more than
/// 256 gradients a bucket may have a 128th of all bytes.
///
/// That merging gradients so is best where sending takes a + b * bytes is from Shi, Chu and Li, "MG-WFBP:
/// Efficient Data Communication for Distributed Synchronous SGD Algorithms", INFOCOM 2019; here the cuts are
/// found by dynamic programming.
std::vector<std::size_t> plan_buckets(const std::vector<GradientArrival>& arrivals, CommunicationCost cost,
                                      std::size_t most_bytes);

}  // namespace lockstep::parallel
