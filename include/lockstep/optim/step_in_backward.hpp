#pragma once

#include "lockstep/optim/fused_optimizer.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::optim {

/// From now on each backward steps the parameters itself, bucket by bucket as their averages arrive, while
/// the other buckets are on their way: with the bits of a step after backward, whose time is hidden behind
/// communication. No gradients are left afterwards, so `optimizer.step()` in the loop does nothing and may
/// stay, and norms for clipping cannot be taken. In a group of one, `optimizer.step()` does the step.
///
///     lockstep::optim::step_in_backward(ddp, optimizer);
///
/// The optimizer must outlive the wrapper's last backward. *Local*, but every rank must do the same, between
/// a backward and the next forward. Throws UsageError when the optimizer lacks a parameter of the wrapper,
/// and for options that leave a choice until backward has ended: find_unused_parameters, static_graph,
/// sparse_parameters, and steps that are skipped for gradients that are not finite. With it, no_sync() throws
/// UsageError in the next forward.
void step_in_backward(DistributedDataParallelBase& ddp, FusedOptimizer& optimizer);

}  // namespace lockstep::optim
