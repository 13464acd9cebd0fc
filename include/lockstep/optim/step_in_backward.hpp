#pragma once

#include "lockstep/optim/fused_optimizer.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::optim {

/// From now on, each backward steps the parameters itself, bucket by bucket as the averages become available,
/// while other buckets are still being reduced. The result is bit-identical to a step after backward, but its
/// time is hidden behind communication. No gradients are left afterwards, so `optimizer.step()` in the loop
/// does nothing and may stay, and gradient norms cannot be computed. In a group of one, `optimizer.step()`
/// does the step.
///
///     lockstep::optim::step_in_backward(ddp, optimizer);
///
/// The optimizer must outlive the wrapper's last backward. *Local*, but every rank must do the same, between
/// a backward and the next forward. Throws UsageError if the optimizer lacks a parameter of the wrapper, and
/// with options that are only decided when backward has ended: find_unused_parameters, static_graph,
/// sparse_parameters, and skipping of steps with non-finite gradients. A forward inside no_sync() then throws
/// UsageError.
void step_in_backward(DistributedDataParallelBase& ddp, FusedOptimizer& optimizer);

}  // namespace lockstep::optim
