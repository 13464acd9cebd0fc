#pragma once

#include <tuple>

#include "lockstep/optim/fused_optimizer.hpp"

namespace lockstep::optim {

/// Names, defaults and meaning as in torch.optim.Adam.
struct AdamOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  /// Added to the gradient (AdamW shrinks the weights instead).
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};

/// Names, defaults and meaning as in torch.optim.AdamW.
struct AdamWOptions {
  double lr = 1e-3;
  std::tuple<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

/// Use it as Adam or AdamW.
template <class Options>
class BasicAdam : public FusedOptimizer {
 public:
  /// Throws UsageError if an option is out of range.
  explicit BasicAdam(std::vector<at::Tensor> parameters, const Options& options = {});
  explicit BasicAdam(std::vector<ParameterGroup<Options>> groups);

 private:
  void update(const torch::optim::OptimizerOptions& options, const Tensors& parameters,
              const Tensors& gradients) override;
  void take_off_steps(const Tensors& parameters, std::int64_t count) override;
};

/// torch.optim.Adam(fused=True). See FusedOptimizer.
///
///     lockstep::optim::Adam optimizer(model->parameters(), {.lr = 1e-3});
using Adam = BasicAdam<AdamOptions>;

/// torch.optim.AdamW(fused=True). See FusedOptimizer.
///
///     lockstep::optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
using AdamW = BasicAdam<AdamWOptions>;

extern template class BasicAdam<AdamOptions>;
extern template class BasicAdam<AdamWOptions>;

}  // namespace lockstep::optim
