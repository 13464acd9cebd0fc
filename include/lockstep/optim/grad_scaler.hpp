#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/optim/step_outcome.hpp"

namespace lockstep::optim {

/// Internal: the gradients that were divided already.
class UnscaledGradients;

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
/// unscale() divides gradients once, in whatever order the functions are called, and by the scale that their
/// loss was multiplied by: gradients that wait for their step when update() changes the scale are multiplied
/// by the change. A step may be left out: clear the gradients instead, and the next loss begins anew. What
/// cannot be right is a UsageError, where PyTorch raises, or divides twice, or not at all: finite gradients
/// to which a further backward has added after unscale(), a step without update() before the next loss,
/// gradients of a loss that was never scaled. In every other order in which PyTorch's own results are those
/// of a training without a scale, gradients, steps, scale and growth are the same as PyTorch's.
///
/// *Local*. Ranks agree without communication, because averaged gradients are finite on all ranks or on none.
/// If each rank only has a part of them, as in a fully sharded model, pass its process group; unscale() and
/// step() are then *Collective* (PyTorch's ShardedGradScaler), and so is the scale() after a step that was
/// left out. One thread at a time.
class GradScaler {
 public:
  /// Throws UsageError if an option is out of range.
  explicit GradScaler(const GradScalerOptions& options = {}, std::optional<ProcessGroup> group = {});

  /// The loss multiplied by the scale. If an optimizer's step was left out after unscale() and its gradients
  /// are not simply gone, waits for the device to know whether they are zero.
  at::Tensor scale(const at::Tensor& loss);

  /// Divides the optimizer's gradients by the scale, for example to clip them before the step. Further calls
  /// do nothing until the next loss is scaled. Throws UsageError for float16 gradients (parameters must be
  /// float32), and as described above.
  void unscale(torch::optim::Optimizer& optimizer);

  /// Steps the optimizer unless a gradient is not finite; returns whether it did. For Adam, AdamW and SGD of
  /// this library the device decides, and the host does not wait for it before it reads the outcome; that
  /// includes steps that are recorded as a CUDA graph. For other optimizers, and for the first step of SGD
  /// with momentum, the host waits here. Throws UsageError if it is called twice before update(), and as
  /// unscale().
  StepOutcome step(torch::optim::Optimizer& optimizer);
  /// Internal: the same with unscaled gradients multiplied by `factor`, one element of the device, if it is
  /// defined. Whether `.grad` is multiplied as well is left open.
  StepOutcome step_by(torch::optim::Optimizer& optimizer, const at::Tensor& factor);

  /// Computes the next scale; call it after the steps of all optimizers. Throws UsageError if no optimizer
  /// has stepped or was unscaled since the last call; Error once so many steps in a row were skipped that the
  /// scale has fallen below 2^-126: no scale makes such gradients finite. On a GPU that may be noticed some
  /// steps later.
  void update();

  /// Looks for optimizers whose step was left out: unscaled, not stepped, and cleared since. Their next
  /// gradients are scaled ones. Returns whether there were any; update() then takes account of what they
  /// found. scale() does this too.
  bool drop_left_out_steps();

  /// Makes an optimizer known before its first unscale() or step(), so that update() sees its gradients. Only
  /// needed if, before them, there is an update() between two losses whose gradients it adds up.
  void watch(const torch::optim::Optimizer& optimizer);

  /// Call it before an optimizer that was given to these functions is destroyed, if another one may be
  /// created in its place.
  void forget(const torch::optim::Optimizer& optimizer);

  double get_scale() const;

  /// Saves and restores, as JSON, the scale and the number of steps since it changed. The latter forgets
  /// which optimizers were unscaled or have stepped since the last update(). Throws DataError.
  std::string state_dict() const;
  void load_state_dict(const std::string& text);

 private:
  /// State of an optimizer since the last update().
  struct Seen {
    /// Of the gradients as they are; undefined before unscale().
    at::Tensor found_inf;
    bool stepped = false;
    StepOutcome outcome = {};
    bool newer_loss = false;
  };
  UnscaledGradients* find_known(const torch::optim::Optimizer& optimizer) const;
  void adapt_gradients(const at::Tensor& before) const;
  bool is_true_on_any(bool here) const;
  void set_scale(const at::Tensor& next);
  void look_whether_lost();

  GradScalerOptions options_;
  std::optional<ProcessGroup> group_;
  at::Tensor scale_;
  at::Tensor growth_;
  /// Since a step was recorded as a CUDA graph, whose replays read and write the scale where it is.
  bool keeps_memory_ = false;
  /// The scale after some update() whose steps the host did not wait for.
  std::shared_ptr<LateNumber> late_scale_;
  /// Undefined before the first. Never changed in place.
  at::Tensor scale_of_last_loss_;
  std::map<const torch::optim::Optimizer*, Seen> seen_;
  /// In the order in which they became known, which is the same on all ranks.
  std::vector<std::pair<const torch::optim::Optimizer*, std::shared_ptr<UnscaledGradients>>> known_;
  /// What all gradients that were looked at since the last update() had; undefined if there were none.
  at::Tensor found_inf_;
};

}  // namespace lockstep::optim
