#pragma once

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/optim/adam.hpp"
#include "lockstep/train/mixed_precision.hpp"

// How many kernels a training step starts.
namespace lockstep::models {

/// Operations that start no kernel; dropout, because these models have none.
inline const std::set<std::string> kViews = {"view",
                                             "_unsafe_view",
                                             "t",
                                             "transpose",
                                             "slice",
                                             "split",
                                             "chunk",
                                             "expand",
                                             "detach",
                                             "detach_",
                                             "alias",
                                             "unsqueeze",
                                             "squeeze",
                                             "as_strided",
                                             "select",
                                             "permute",
                                             "_reshape_alias",
                                             "narrow",
                                             "unbind",
                                             "lift_fresh",
                                             "split_with_sizes",
                                             "reshape",
                                             "is_same_size",
                                             "_local_scalar_dense",
                                             "empty",
                                             "empty_like",
                                             "new_empty",
                                             "empty_strided",
                                             "new_empty_strided",
                                             "_fused_sdp_choice",
                                             "is_pinned",
                                             "dropout",
                                             "set_",
                                             "resize_",
                                             "expand_as",
                                             "view_as",
                                             "flatten",
                                             "item",
                                             "is_nonzero",
                                             "result_type",
                                             "can_cast",
                                             "unflatten",
                                             "_has_compatible_shallow_copy_type",
                                             "requires_grad_",
                                             "resolve_conj",
                                             "resolve_neg",
                                             "numpy_T",
                                             "contiguous",
                                             "to"};

/// How many kernels a whole operation starts on a GPU, where that is not what is counted on the CPU.
using KernelsOnGpu = std::map<std::string, std::int64_t>;

/// Counts the innermost operations of this thread, LibTorch's and Lockstep's own kernels ("lockstep::...").
/// Operations of `on_gpu` count as it says, whatever is inside.
class KernelCount {
 public:
  template <class Step>
  static std::map<std::string, std::int64_t> of(const Step& step, const KernelsOnGpu& on_gpu = {}) {
    KernelCount count;
    count.on_gpu_ = on_gpu;
    current = &count;
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}));
    step();
    at::removeCallback(handle);
    current = nullptr;
    return count.kernels_;
  }

 private:
  static std::string bare_name(const at::RecordFunction& operation) {
    const std::string name = operation.name();
    return name.starts_with("aten::") ? name.substr(6) : name;
  }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation) {
    current->has_kernels_.push_back(false);
    if (current->on_gpu_.contains(bare_name(operation))) ++current->known_;
    return nullptr;
  }
  static void end(const at::RecordFunction& operation, at::ObserverContext* /*context*/) {
    bool starts = current->has_kernels_.back();
    current->has_kernels_.pop_back();
    const std::string name = operation.name();
    const bool is_operation = name.starts_with("aten::") || name.starts_with("lockstep::");
    const std::string bare = bare_name(operation);
    if (const auto known = current->on_gpu_.find(bare); known != current->on_gpu_.end()) {
      if (--current->known_ == 0 && known->second > 0) current->kernels_[bare] += known->second;
      starts = true;
    }
    if (current->known_ > 0) starts = true;
    if (!starts && is_operation && !kViews.contains(bare)) {
      ++current->kernels_[bare];
      starts = true;
    }
    if (starts && !current->has_kernels_.empty()) current->has_kernels_.back() = true;
  }

  inline static thread_local KernelCount* current = nullptr;
  std::map<std::string, std::int64_t> kernels_;
  KernelsOnGpu on_gpu_;
  /// Operations of `on_gpu_` that are running.
  int known_ = 0;
  /// Of the operations that are running: whether one inside has started a kernel.
  std::vector<bool> has_kernels_;
};

/// That a step starts `most` kernels, or a few less.
inline void expect_kernels(const std::map<std::string, std::int64_t>& kernels, std::int64_t most) {
  std::int64_t all = 0;
  std::string list;
  for (const auto& [name, count] : kernels) {
    all += count;
    list += name + ' ' + std::to_string(count) + '\n';
  }
  ::testing::Test::RecordProperty("kernels", std::to_string(all));
  EXPECT_LE(all, most) << list;
  EXPECT_GE(all, most - 20) << "fewer than allowed: lower the budget\n" << list;
}

/// A step of bf16 autocast with AdamW, as a Trainer does it.
template <class Model, class Loss>
std::map<std::string, std::int64_t> kernels_of_step(Model model, const Loss& loss_of,
                                                    const KernelsOnGpu& on_gpu = {}) {
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  const auto step = [&] {
    const at::Tensor loss = in_precision(at::kCPU, MixedPrecision::bf16, [&] { return loss_of(model); });
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  step();
  return KernelCount::of(step, on_gpu);
}

}  // namespace lockstep::models
