#include "data/permutation.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

namespace lockstep {

at::Tensor seeded_permutation(std::int64_t length, std::uint64_t seed) {
  return at::randperm(length, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kLong));
}

}  // namespace lockstep
