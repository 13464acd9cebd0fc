#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// The states of random generators at one moment: the CPU's, and the current CUDA device's if the process
/// uses one.
class GeneratorStates {
 public:
  GeneratorStates() {
    add(at::detail::getDefaultCPUGenerator());
    if (!at::globalContext().hasCUDA()) return;
    const auto device = at::detail::getCUDAHooks().getCurrentDevice();
    if (at::detail::getCUDAHooks().hasPrimaryContext(device))
      add(at::globalContext().defaultGenerator(at::Device(at::kCUDA, device)));
  }

  void set() const {
    for (auto [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

  /// The current states of the same generators.
  GeneratorStates now() const {
    GeneratorStates present(*this);
    present.states_.clear();
    for (const auto& [generator, state] : states_) present.add(generator);
    return present;
  }

 private:
  void add(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }

  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// Sets generators to given states, and back at its end.
class GeneratorScope {
 public:
  explicit GeneratorScope(const GeneratorStates& states) : before_(states.now()) { states.set(); }
  ~GeneratorScope() { before_.set(); }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  GeneratorStates before_;
};

}  // namespace lockstep::parallel
