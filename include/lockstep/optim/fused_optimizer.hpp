#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/core/lifetime.hpp"
#include "lockstep/optim/zero_grad.hpp"

namespace lockstep::optim {

/// Internal: numbers of the device that a step takes account of, and the steps that a device has left out.
struct StepFactors;
class SkippedSteps;

/// Parameters with their own options.
template <class Options>
struct ParameterGroup {
  std::vector<at::Tensor> parameters;
  Options options = {};
};

/// A plain struct of options, as LibTorch's optimizers store it per group. `values` may be changed at any
/// time; learning rate schedulers do so.
template <class Fields>
struct GroupOptions : torch::optim::OptimizerCloneableOptions<GroupOptions<Fields>> {
  explicit GroupOptions(const Fields& fields) : values(fields) {}
  explicit GroupOptions(double learning_rate) { values.lr = learning_rate; }
  double get_lr() const override { return values.lr; }
  void set_lr(const double learning_rate) override { values.lr = learning_rate; }

  Fields values;
};

/// Base class of Lockstep's optimizers: all parameters of a group are updated by one call of PyTorch's fused
/// kernels, bit-identical to `torch.optim`'s classes with `fused=True`. They can be used wherever LibTorch
/// takes a torch::optim::Optimizer. Lockstep's checkpoints save their state, LibTorch's archives do not.
/// Gradients must be dense.
class FusedOptimizer : public torch::optim::Optimizer {
 public:
  /// One step of all parameters that have a gradient. `closure`, if any, is called first to compute the loss,
  /// which is returned. *Local*. Throws UsageError for a sparse gradient and for a parameter that is not
  /// dense in memory.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// As LibTorch's, and also for gradients that are views into DistributedDataParallel's buckets. *Local*.
  void zero_grad(bool set_to_none = true) { lockstep::zero_grad(*this, set_to_none); }

  /// Of this object: checkpoints use it. *Local*.
  const Lifetime& lifetime() const noexcept { return lifetime_; }

  /// One step of some of a group's parameters with these gradients; ignores their `.grad`. *Local*.
  void step_with(torch::optim::OptimizerParamGroup& group, const std::vector<at::Tensor>& parameters,
                 const std::vector<at::Tensor>& gradients);

  /// As LibTorch's, with the numbers of the steps that were made: a GradScaler lets the device leave out a
  /// step whose gradients are not finite, and the host waits for it here. LibTorch's own function, which a
  /// reference to the base class calls, may count such steps still. *Local*.
  auto& state() {
    settle();
    return Optimizer::state();
  }
  const auto& state() const {
    settle();
    return Optimizer::state();
  }

  /// Internal, for GradScaler: whether the device can leave out the next step.
  virtual bool can_leave_out_step() const { return true; }
  /// Internal: one step that takes account of these numbers, without waiting for them.
  void step_by(const StepFactors& factors);
  /// Internal: waits for the device, if it may have left out steps, and takes these off their numbers in the
  /// state.
  void settle() const;

 protected:
  using Tensors = std::vector<at::Tensor>;
  FusedOptimizer(std::vector<torch::optim::OptimizerParamGroup> groups,
                 std::unique_ptr<torch::optim::OptimizerOptions> defaults);

  /// Updates parameters of one group, device and dtype.
  virtual void update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
                      const Tensors& gradients) = 0;
  /// The device has left out `count` of the last steps of these parameters.
  virtual void take_off_steps(const Tensors& parameters, std::int64_t count);

  /// Those of the step in progress; null if it has none.
  const StepFactors* factors() const noexcept { return factors_; }
  SkippedSteps& skipped_steps() const noexcept { return *skipped_; }

  /// The state of a parameter; a new one is empty.
  template <class State>
  State& state_of(const at::Tensor& parameter) {
    auto& entry = state_[parameter.unsafeGetTensorImpl()];
    if (entry == nullptr) entry = std::make_unique<State>();
    return static_cast<State&>(*entry);
  }

 private:
  void step_groups();

  Lifetime lifetime_;
  std::shared_ptr<SkippedSteps> skipped_;
  const StepFactors* factors_ = nullptr;
};

/// Used by the constructors of the optimizers.
template <class Fields>
std::vector<torch::optim::OptimizerParamGroup> as_groups(std::vector<ParameterGroup<Fields>> groups) {
  std::vector<torch::optim::OptimizerParamGroup> result;
  for (auto& group : groups)
    result.emplace_back(std::move(group.parameters), std::make_unique<GroupOptions<Fields>>(group.options));
  return result;
}

}  // namespace lockstep::optim
