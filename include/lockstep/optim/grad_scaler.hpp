#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::optim {

/// Names, defaults and meaning as in torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  /// Steps without an infinity after which the scale grows.
  std::int64_t growth_interval = 2000;
};

/// Loss scaling for float16: torch.amp.GradScaler. Gradients too small for float16 are computed from a loss
/// that is multiplied by a factor; steps whose gradients overflow are left out, and the factor goes down.
///
///     scaler.scale(loss).backward();
///     scaler.step(optimizer);
///     scaler.update();
///
/// *Local*. Ranks agree by themselves: gradients that were averaged are finite on all ranks or on none. Not
/// so where each has a part of them, as in a fully sharded model: give its process group, and unscale() and
/// step() are *Collective* (PyTorch's ShardedGradScaler). One thread at a time.
class GradScaler {
 public:
  /// Throws UsageError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {}, std::optional<ProcessGroup> group = {});

  /// The loss times the scale.
  at::Tensor scale(const at::Tensor& loss);

  /// Divides the optimizer's gradients by the scale, for whoever clips them before the step; once between two
  /// calls of update(), later ones do nothing. Throws UsageError for float16 gradients: parameters must be
  /// float32.
  void unscale(torch::optim::Optimizer& optimizer);

  /// The optimizer's step, unless a gradient is not finite; true when it was made. Throws UsageError when it
  /// is called twice before update().
  bool step(torch::optim::Optimizer& optimizer);

  /// After the steps of all optimizers: the next scale.
  void update();

  double get_scale() const;

  /// The scale and the steps since it changed, as JSON, and back. Throws DataError.
  std::string state_dict() const;
  void load_state_dict(const std::string& text);

 private:
  /// What is known of an optimizer since the last update().
  struct Seen {
    at::Tensor found_inf;
    bool stepped = false;
  };

  GradScalerOptions options_;
  std::optional<ProcessGroup> group_;
  at::Tensor scale_;
  at::Tensor growth_;
  std::map<const torch::optim::Optimizer*, Seen> seen_;
};

}  // namespace lockstep::optim
