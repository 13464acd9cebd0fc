#include "train/elastic/update_watch.hpp"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "lockstep/optim/fused_optimizer.hpp"
#include "train/accumulation_window.hpp"
#include "train/prepared_objects.hpp"
#include "train/training_scope.hpp"

namespace lockstep::train {
namespace {

/// Whether its steps count up the versions of the weights. LibTorch's SGD changes `.data()`, which has a
/// version of its own, and of classes of the program nothing is known.
bool counts_versions(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const optim::FusedOptimizer*>(&optimizer) != nullptr ||
         dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr ||
         dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr;
}

/// Of weights: another one if they have changed.
class WeightHash {
 public:
  /// By place and version: an operation in place counts up the version, which never returns.
  void add_version(const at::Tensor& tensor) {
    add(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()));
    add(tensor.is_inference() ? 0 : static_cast<std::uint64_t>(tensor._version()));
  }
  /// By value.
  void add_value(const at::Tensor& tensor) {
    const at::Tensor here = tensor.detach().cpu().contiguous();
    const auto* const bytes = static_cast<const char*>(here.const_data_ptr());
    const std::size_t size = here.nbytes();
    for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + at, std::min(sizeof(word), size - at));
      add(word);
    }
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  void add(std::uint64_t word) noexcept {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
    value_ = std::rotl((value_ ^ word) * kOdd, 29);
  }
  std::uint64_t value_ = 0;
};

}  // namespace

std::uint64_t UpdateWatch::now() const {
  if (!TrainingScope::is_plain_loop(accelerator_))
    return TrainingScope::window_of(accelerator_).optimizer_steps();
  const auto& prepared = TrainingScope::prepared_of(accelerator_);
  WeightHash hash;
  for (const auto& model : prepared.models()) {
    for (const auto& entry : model.wrapped.parameters()) hash.add_version(entry.tensor);
  }
  for (auto* const optimizer : prepared.optimizers()) {
    const bool by_version = counts_versions(*optimizer);
    for (const auto& group : optimizer->param_groups()) {
      for (const auto& weight : group.params())
        by_version ? hash.add_version(weight) : hash.add_value(weight);
    }
  }
  return hash.value();
}

}  // namespace lockstep::train
