#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "lockstep/comm/process_group.hpp"

namespace c10d {
class Backend;
}

namespace lockstep::comm {

/// Starts a batch of operations whose order, on this rank and on the others, does not matter. A backend that
/// coalesces (NCCL) combines them into one operation. Other backends start the receives first and poll them
/// before each send, which may wait for space at the receiver. *Local*.
std::vector<c10::intrusive_ptr<c10d::Work>> start_batch(c10d::Backend& backend,
                                                        const std::vector<P2POp>& operations);

}  // namespace lockstep::comm
