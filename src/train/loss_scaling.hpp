#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/optim/grad_scaler.hpp"

namespace lockstep::train {

/// The loss scale of float16 for all optimizers of a program. The scale is updated once, after the last
/// optimizer has stepped. If not all of them step (a program that trains two models in turn), it is updated
/// before the next loss is scaled; so it is if a program leaves out a step and clears the gradients instead.
/// A step that one optimizer skipped does not affect another optimizer.
class LossScaling {
 public:
  /// `group`: its ranks hold parts of the gradients and skip a step together.
  explicit LossScaling(const optim::GradScalerOptions& options, const std::optional<ProcessGroup>& group = {})
      : scaler_(options, group) {}

  /// `alive`, if given, expires when the optimizer may no longer be used.
  void add_optimizer(torch::optim::Optimizer& optimizer,
                     std::optional<std::weak_ptr<const void>> alive = std::nullopt) {
    optimizers_.push_back({&optimizer, std::move(alive)});
  }
  std::size_t optimizers() const noexcept { return optimizers_.size(); }
  /// Forgets all but the first `count` optimizers.
  void keep_first(std::size_t count);
  void clear() { keep_first(0); }

  at::Tensor scale(const at::Tensor& loss);
  /// Divides the gradients of the optimizers that have one of these parameters by the scale, once between two
  /// losses.
  void unscale(const std::vector<at::Tensor>& parameters);
  void unscale_all();
  /// True if the optimizer stepped, false if the step was skipped.
  optim::StepOutcome step(torch::optim::Optimizer& optimizer, const at::Tensor& factor = {});

  /// Waits for the device, unless it is known that the optimizer stepped.
  bool skipped(const torch::optim::Optimizer& optimizer) const;
  bool any_skipped() const;

  /// The scale for the next loss, and the text for checkpoints, as in GradScaler.
  double get_scale();
  std::string state_dict();
  void load_state_dict(const std::string& text);

 private:
  struct Entry {
    torch::optim::Optimizer* optimizer;
    std::optional<std::weak_ptr<const void>> alive;
  };

  void update();
  /// The optimizers that still exist.
  std::vector<torch::optim::Optimizer*> living() const;

  optim::GradScaler scaler_;
  std::vector<Entry> optimizers_;
  /// Optimizers that have stepped or skipped since the last update of the scale.
  std::set<const torch::optim::Optimizer*> done_;
  /// Of the last step of each optimizer that has made one.
  std::map<const torch::optim::Optimizer*, optim::StepOutcome> outcomes_;
};

}  // namespace lockstep::train
