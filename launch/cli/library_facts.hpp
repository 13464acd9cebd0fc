#pragma once

#include "cli/host_facts.hpp"

namespace lockstep::launch {

/// What the library says about itself: its version, LibTorch's, the CUDA devices and NCCL. It is loaded for
/// this, from beside the launcher (`../lib`) or wherever the system finds it; where it cannot be, the one
/// fact is why not. *Local*.
Facts library_facts();

}  // namespace lockstep::launch
