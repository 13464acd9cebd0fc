#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

/// Starts all of a batch so that the order of its operations, on this rank and on the others, does not
/// matter. A backend that coalesces (NCCL) makes one operation of it; the others get receives first, and what
/// has come is taken before each send, which may wait for room at the receiver. *Local*.
std::vector<c10::intrusive_ptr<c10d::Work>> start_batch(c10d::Backend& backend,
                                                        const std::vector<P2POp>& operations);

}  // namespace lockstep::comm
