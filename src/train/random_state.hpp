#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/checksum.hpp"

namespace lockstep::train {

// The random numbers of each rank: LibTorch's default generator for the CPU, and that of the rank's CUDA
// device.

/// The state of one rank's generators as bytes; `cuda` is empty on a rank without such a device.
struct RandomState {
  std::string cpu;
  std::string cuda;
};

/// This rank's state. *Local*.
RandomState random_state(const at::Device& device);
/// Every rank's state, in rank order, at every rank. *Collective*.
std::vector<RandomState> gather_random_states(const ProcessGroup& group);

FileDigest write_random_state(const std::filesystem::path& path, const RandomState& state);
/// Throws DataError.
RandomState read_random_state(const std::filesystem::path& path);

/// Gives each rank its state from rank 0's `states` (ignored elsewhere). *Collective*.
void scatter_random_states(const ProcessGroup& group, const std::vector<RandomState>& states);

/// For a world of another size than the one that was saved: new random numbers on each rank, which depend on
/// the saved state of rank 0 and the rank alone. *Collective*.
void begin_new_random_states(const ProcessGroup& group, const std::vector<RandomState>& states);

}  // namespace lockstep::train
