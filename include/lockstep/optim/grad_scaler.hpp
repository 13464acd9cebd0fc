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
  /// Consecutive steps with finite gradients after which the scale grows.
  std::int64_t growth_interval = 2000;
};

/// Loss scaling for float16: torch.amp.GradScaler. The loss is multiplied by a factor, so that small
/// gradients do not underflow in float16; steps whose gradients overflow are skipped, and the factor is
/// reduced.
///
///     scaler.scale(loss).backward();
///     scaler.step(optimizer);
///     scaler.update();
///
/// *Local*. Ranks agree without communication, because averaged gradients are finite on all ranks or on none.
/// If each rank only has a part of them, as in a fully sharded model, pass its process group; unscale() and
/// step() are then *Collective* (PyTorch's ShardedGradScaler). One thread at a time.
class GradScaler {
 public:
  /// Throws UsageError if an option is out of range.
  explicit GradScaler(const GradScalerOptions& options = {}, std::optional<ProcessGroup> group = {});

  /// The loss multiplied by the scale.
  at::Tensor scale(const at::Tensor& loss);

  /// Divides the optimizer's gradients by the scale, for example to clip them before the step. Further calls
  /// before update() do nothing. Throws UsageError for float16 gradients: parameters must be float32.
  void unscale(torch::optim::Optimizer& optimizer);

  /// Steps the optimizer unless a gradient is not finite; returns whether it did. Throws UsageError if it is
  /// called twice before update().
  bool step(torch::optim::Optimizer& optimizer);

  /// Computes the next scale; call it after the steps of all optimizers.
  void update();

  double get_scale() const;

  /// Saves and restores, as JSON, the scale and the number of steps since it changed. Throws DataError.
  std::string state_dict() const;
  void load_state_dict(const std::string& text);

 private:
  /// State of an optimizer since the last update().
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
