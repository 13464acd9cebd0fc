#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/checksum.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::train {

// Random states of each rank: LibTorch's default CPU generator, and the generator of the rank's CUDA device.

/// State of one rank's generators as bytes; `cuda` is empty on a rank without a CUDA device.
struct RandomState {
  std::string cpu;
  std::string cuda;
};

/// This rank's state. *Local*.
RandomState random_state(const at::Device& device);
/// Every rank's state, in rank order, on every rank. *Collective*.
std::vector<RandomState> gather_random_states(const ProcessGroup& group);

FileDigest write_random_state(const std::filesystem::path& path, const RandomState& state);
/// Throws DataError if the file has no valid state.
RandomState read_random_state(const std::filesystem::path& path);

/// Each rank restores its state from rank 0's `states` (ignored on other ranks). *Collective*.
void scatter_random_states(const ProcessGroup& group, const std::vector<RandomState>& states);

/// For another number of ranks than the saved one: seeds each rank's generators from rank 0's saved CPU state
/// and the rank. *Collective*.
void begin_new_random_states(const ProcessGroup& group, const std::vector<RandomState>& states);

}  // namespace lockstep::train
