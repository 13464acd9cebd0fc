#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::train {

/// Seeds this rank's generators (that of the CPU, and that of its device) for one step. What a step draws
/// then depends on the job's seed, the step and the rank only: a process that replaces a lost one draws the
/// same dropout masks, although the generators' states are lost. *Local*.
void seed_step(const at::Device& device, std::uint64_t seed, std::uint64_t step, int rank);

/// The seed that the CPU's generator has. *Local*.
std::uint64_t seed_of_generator();

}  // namespace lockstep::train
