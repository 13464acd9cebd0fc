#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/optim/parameter_groups.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// What Trainer needs of a model. `torch::nn::Module` has no virtual forward, so a small object stands
/// between them; adapt_model() makes one from a module and a function. One thread at a time.
class ModelAdapter {
 public:
  virtual ~ModelAdapter() = default;
  ModelAdapter() = default;
  ModelAdapter(const ModelAdapter&) = delete;
  ModelAdapter& operator=(const ModelAdapter&) = delete;

  /// Moves the model to the accelerator's device and wraps it for training; again: does nothing.
  /// *Collective*.
  virtual void prepare(const Accelerator& accelerator) = 0;
  /// Moves it to the device alone. *Local*.
  virtual void place(const at::Device& device) = 0;
  /// The outputs for a batch by name: "loss" and "logits", for example. In training, through the wrapped
  /// model: *Collective*. In an evaluation through the bare one: *Local*.
  virtual Batch forward(const Batch& batch) = 0;
  virtual Batch evaluate(const Batch& batch) = 0;
  /// Training mode or evaluation mode. *Local*.
  virtual void train(bool on) = 0;
  /// Floating-point tensors in that type, for an evaluation of half the width. *Local*.
  virtual void to(at::ScalarType dtype) = 0;

  /// Parameters and buffers under their names, and layer norms: see layer_norms_of(). *Local*.
  virtual std::vector<NamedTensor> parameters() = 0;
  virtual std::vector<NamedTensor> buffers() = 0;
  virtual std::vector<std::string> layer_norms() = 0;

  /// As Accelerator::save_model and load_model. *Collective*.
  virtual void save(const Accelerator& accelerator, const std::filesystem::path& folder) = 0;
  virtual void load(const Accelerator& accelerator, const std::filesystem::path& path) = 0;
};

/// A module as the function of adapt_model() sees it in an evaluation: called like the wrapped one, without a
/// wrapper. *Local*.
template <class Module>
class BareModel {
 public:
  explicit BareModel(Module& module) : module_(module) {}
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    auto& module = parallel::module_of(module_);
    if constexpr (requires { module.forward(std::forward<Inputs>(inputs)...); }) {
      return module.forward(std::forward<Inputs>(inputs)...);
    } else {
      // A torch::jit::Module.
      return module.forward({std::forward<Inputs>(inputs)...});
    }
  }
  Module& module() { return module_; }

 private:
  Module& module_;
};

/// The adapter of a module and a function that says how it is called; see adapt_model().
template <class Module, class Forward>
class FunctionAdapter final : public ModelAdapter {
 public:
  FunctionAdapter(Module module, Forward forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}

  void prepare(const Accelerator& accelerator) override {
    if (!prepared_) prepared_.emplace(accelerator.prepare(module_));
  }
  void place(const at::Device& device) override { parallel::module_of(module_).to(device); }
  Batch forward(const Batch& batch) override { return forward_(*prepared_, batch); }
  Batch evaluate(const Batch& batch) override {
    BareModel<Module> model(module_);
    return forward_(model, batch);
  }
  void train(bool on) override { parallel::module_of(module_).train(on); }
  void to(at::ScalarType dtype) override { parallel::module_of(module_).to(dtype); }
  std::vector<NamedTensor> parameters() override { return parallel::named_parameters_of(module_); }
  std::vector<NamedTensor> buffers() override { return parallel::named_buffers_of(module_); }
  std::vector<std::string> layer_norms() override { return optim::layer_norms_of(module_); }
  void save(const Accelerator& accelerator, const std::filesystem::path& folder) override {
    accelerator.save_model(module_, folder);
  }
  void load(const Accelerator& accelerator, const std::filesystem::path& path) override {
    accelerator.load_model(module_, path);
  }

 private:
  Module module_;
  Forward forward_;
  std::optional<AcceleratedModel<Module>> prepared_;
};

/// A model for Trainer: a `torch::nn` module (its holder), and how a batch becomes outputs. `forward` is
/// called with the wrapped model in training and with a BareModel in evaluations, so its first
/// parameter is `auto&`:
///
///     auto model = lockstep::adapt_model(net, [](auto& model, const lockstep::Batch& batch) {
///       const at::Tensor logits = model(batch["image"]);
///       return lockstep::Batch{{"loss", F::cross_entropy(logits, batch["label"])}, {"logits", logits}};
///     });
///
/// Of the outputs, "loss" is what Trainer::compute_loss takes unless told otherwise; what has as many rows as
/// the batch is what predict() collects and metrics see. *Local*.
template <class Module, class Forward>
std::shared_ptr<ModelAdapter> adapt_model(Module module, Forward forward) {
  return std::make_shared<FunctionAdapter<Module, Forward>>(std::move(module), std::move(forward));
}

}  // namespace lockstep
