#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep {

/// `torch.randperm(length, generator=torch.Generator().manual_seed(seed))`: int64, [length], on the CPU.
at::Tensor seeded_permutation(std::int64_t length, std::uint64_t seed);

}  // namespace lockstep
