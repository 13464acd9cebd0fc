#include "train/elastic/step_seed.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace lockstep::train {
namespace {

/// splitmix64: neighbouring numbers become unrelated ones.
std::uint64_t scattered(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111eb;
  return value ^ (value >> 31U);
}

void set_seed(at::Generator generator, std::uint64_t seed) {
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace

void seed_step(const at::Device& device, std::uint64_t seed, std::uint64_t step, int rank) {
  const std::uint64_t own = scattered(scattered(scattered(seed) + step) + static_cast<std::uint64_t>(rank));
  set_seed(at::detail::getDefaultCPUGenerator(), own);
  if (device.is_cuda()) set_seed(at::globalContext().defaultGenerator(device), own);
}

}  // namespace lockstep::train
