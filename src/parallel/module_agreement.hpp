#pragma once

#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::parallel {

/// Throws CommunicationError on every rank, naming each differing tensor and who has what, unless all ranks hold the same
/// names, dtypes and shapes in the same order. *Collective*.
void check_agreement(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                     const std::vector<NamedTensor>& buffers);

}  // namespace lockstep::parallel
