#include "train/trainer/callback_watch.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <typeinfo>

#include "comm/planner_link.hpp"

namespace lockstep::train {
namespace {

at::Tensor state_of_generator() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

CallbackWatch::CallbackWatch(const ProcessGroup& group, torch::optim::Optimizer& optimizer)
    : group_(group),
      optimizer_(optimizer),
      operations_(comm::operations_begun(group)),
      rates_(rates()),
      weights_(weights()),
      generator_(state_of_generator()) {}

std::string CallbackWatch::what_was_done() const {
  if (comm::operations_begun(group_) != operations_) return "communicated";
  if (rates() != rates_) return "set a learning rate";
  if (weights() != weights_) return "changed weights";
  if (!at::equal(state_of_generator(), generator_)) return "drawn random numbers of LibTorch";
  return "";
}

std::vector<double> CallbackWatch::rates() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

std::uint64_t CallbackWatch::weights() const {
  std::uint64_t versions = 0;
  for (const auto& group : optimizer_.param_groups()) {
    for (const auto& weight : group.params()) versions += weight._version();
  }
  return versions;
}

std::string class_of(const TrainerCallback& callback) {
  const char* const name = typeid(callback).name();
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(name, nullptr, nullptr, nullptr),
                                                        std::free);
  return readable ? readable.get() : name;
}

}  // namespace lockstep::train
