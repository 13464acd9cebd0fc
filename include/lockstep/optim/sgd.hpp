#pragma once

#include "lockstep/optim/fused_optimizer.hpp"

namespace lockstep::optim {

/// Names, defaults and meaning as in torch.optim.SGD.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  /// Needs momentum, and no dampening.
  bool nesterov = false;
  bool maximize = false;
};

/// torch.optim.SGD(fused=True). See FusedOptimizer. float16 and bfloat16 parameters on CPUs are stepped as
/// with fused=False, because PyTorch's kernel computes wrong weights for them.
///
///     lockstep::optim::SGD optimizer(model->parameters(), {.lr = 0.1, .momentum = 0.9});
class SGD : public FusedOptimizer {
 public:
  /// Throws UsageError if an option is out of range.
  explicit SGD(std::vector<at::Tensor> parameters, const SgdOptions& options = {});
  explicit SGD(std::vector<ParameterGroup<SgdOptions>> groups);

  bool can_leave_out_step() const override;

 private:
  void update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
              const Tensors& gradients) override;
};

}  // namespace lockstep::optim
