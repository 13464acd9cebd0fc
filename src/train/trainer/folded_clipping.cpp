#include "train/trainer/folded_clipping.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <typeinfo>

#include "kernels/cuda_kernel.hpp"
#include "kernels/fused_kernels.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/train/callbacks.hpp"
#include "optim/own_optimizer.hpp"

namespace lockstep::train {
namespace {

/// Those of this library: they do not look at gradients.
bool is_own(const TrainerCallback& callback) {
  const auto& type = typeid(callback);
  const auto is_any = [&](const auto&... types) { return ((type == types) || ...); };
  return is_any(typeid(DefaultFlowCallback), typeid(EarlyStoppingCallback), typeid(TrackerCallback),
                typeid(PrinterCallback), typeid(ProgressCallback), typeid(NanGuardCallback),
                typeid(ProfilerCallback), typeid(ThroughputCallback), typeid(MemoryCallback),
                typeid(LearningRateMonitor), typeid(EmaCallback));
}

bool are_of(const torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
            const at::Device& device) {
  std::set<const void*> known;
  for (const auto& entry : parameters) known.insert(entry.tensor.unsafeGetTensorImpl());
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (!known.contains(parameter.unsafeGetTensorImpl())) return false;
      if (parameter.device() != device || parameter.scalar_type() != at::kFloat) return false;
    }
  }
  return true;
}

}  // namespace

bool FoldedClipping::is_possible(Trainer& trainer, torch::optim::Optimizer& optimizer) {
  const Accelerator& accelerator = trainer.accelerator();
  const double limit = trainer.args().max_grad_norm;
  if (!(limit > 0) || std::isinf(limit) || accelerator.options().fsdp_plugin) return false;
  const bool has_kernel = accelerator.device().is_cuda() || kernels::kernel_device_of_tests() != nullptr;
  if (!has_kernel || !kernels::use_fused()) return false;
  const auto* const own = optim::find_own(optimizer);
  if (own == nullptr || typeid(*own) == typeid(optim::SGD)) return false;
  const auto& callbacks = trainer.callbacks();
  return std::ranges::all_of(callbacks, [](const auto& callback) { return is_own(*callback); }) &&
         are_of(optimizer, trainer.model().parameters(), accelerator.device());
}

FoldedClipping::FoldedClipping(const at::Device& device)
    : factor_(at::ones({}, at::TensorOptions(device).dtype(at::kFloat))) {}

at::Tensor FoldedClipping::measure(Accelerator& accelerator, const std::vector<at::Tensor>& parameters,
                                   double max_norm) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = accelerator.clip_grad_norm_(parameters, std::numeric_limits<double>::infinity());
  // As clip_grad_norm_ computes it.
  factor_.copy_(norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1.0), /*non_blocking=*/true);
  return norm;
}

}  // namespace lockstep::train
