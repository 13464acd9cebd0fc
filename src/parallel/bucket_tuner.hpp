#pragma once

#include <memory>
#include <optional>
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

/// Watches some steps and then says which gradients should travel together.
class BucketTuner {
 public:
  BucketTuner(const std::vector<NamedTensor>& parameters, const ProcessGroup& group, std::size_t most_bytes);

  /// At the begin of each synchronised step. In one of the first, when enough has been seen, the layout;
  /// nothing to change when a rank has not seen every gradient. *Collective*.
  std::optional<BucketLayout> step();
  bool is_done() const { return is_done_; }

 private:
  void look();
  /// Means over steps and ranks; empty when a rank has none.
  std::vector<double> mean_arrivals() const;
  BucketLayout layout_for(const std::vector<double>& arrivals, CommunicationCost cost) const;

  std::vector<NamedTensor> parameters_;
  ProcessGroup group_;
  std::size_t most_bytes_;
  std::unique_ptr<ArrivalClock> clock_;
  int steps_ = 0;
  std::vector<double> sums_;  // Of the arrivals in as many backwards as were complete.
  int complete_ = 0;
  bool is_done_ = false;
};

}  // namespace lockstep::parallel
