#pragma once

#include <memory>
#include <vector>

#include "arrival_clock.hpp"
#include "bucket_plan.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::parallel {

/// Whether the bits of averaged gradients may depend on which of them travel together: not where the values
/// of the ranks are added in one order however they lie.
bool sums_depend_on_buckets(const ProcessGroup& group);

/// Whether buckets are to be sized by measured times, by the options and by what can be measured.
bool sizes_are_measured(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                        const DistributedDataParallelOptions& options);

/// Watches some backwards and then says which gradients should travel together.
class BucketTuner {
 public:
  BucketTuner(const std::vector<NamedTensor>& parameters, const ProcessGroup& group, std::size_t most_bytes);

  /// After each synchronised backward, before the next one begins. True when enough has been seen; nothing
  /// more is to be called then but layout(). *Collective*.
  bool step();
  /// Empty where buckets are to stay as they are: a rank has not seen every gradient.
  const BucketLayout& layout() const { return layout_; }

 private:
  void take_arrivals();
  bool all_are_trained() const;
  /// Means over steps and ranks; empty when a rank has none, or has frozen a parameter.
  std::vector<double> mean_arrivals() const;
  BucketLayout layout_for(const std::vector<double>& arrivals, CommunicationCost cost) const;

  std::vector<NamedTensor> parameters_;
  ProcessGroup group_;
  std::size_t most_bytes_;
  std::unique_ptr<ArrivalClock> clock_;
  int backwards_ = 0;
  std::vector<double> sums_;  // Of the arrivals in as many backwards as were complete.
  int complete_ = 0;
  BucketLayout layout_;
};

}  // namespace lockstep::parallel
