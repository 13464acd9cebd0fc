#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// The GPUs in CUDA_VISIBLE_DEVICES, by the rules of the CUDA driver: numbers below `gpus`, and names that
/// begin with "GPU-" or "MIG-". The first entry that is neither, such as -1 or "NoDevFiles", hides itself and
/// all after it. Nothing if the variable is not set.
std::optional<std::vector<std::string>> visible_devices(const Environment& environment,
                                                        int gpus = std::numeric_limits<int>::max());

}  // namespace lockstep
