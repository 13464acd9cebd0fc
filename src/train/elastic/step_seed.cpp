#include "train/elastic/step_seed.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

#include "core/random.hpp"

namespace lockstep::train {
namespace {

void set_seed(at::Generator generator, std::uint64_t seed) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

std::uint64_t seed_of_generator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed();
}

void seed_step(const at::Device& device, std::uint64_t seed, std::uint64_t step, int rank) {
  const std::uint64_t own = mix_bits(mix_bits(mix_bits(seed) + step) + static_cast<std::uint64_t>(rank));
  set_seed(at::detail::getDefaultCPUGenerator(), own);
  if (device.is_cuda()) set_seed(at::globalContext().defaultGenerator(device), own);
}

}  // namespace lockstep::train
