#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/optim/parameter_groups.hpp"
#include "lockstep/parallel/unit.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep {

/// The interface of a model to Trainer, because `torch::nn::Module` has no virtual forward. wrap_model()
/// creates one from a module and a function. One thread at a time.
class ModelAdapter {
 public:
  virtual ~ModelAdapter() = default;
  ModelAdapter() = default;
  ModelAdapter(const ModelAdapter&) = delete;
  ModelAdapter& operator=(const ModelAdapter&) = delete;

  /// Moves the model to the accelerator's device and wraps it for training; a second call wraps it anew.
  /// *Collective*.
  virtual void prepare(Accelerator& accelerator) = 0;
  /// Only moves it to the device; evaluations then compute in the accelerator's mixed precision. *Local*.
  virtual void place(const Accelerator& accelerator) = 0;
  /// The outputs for a batch by name, for example "loss" (a scalar) and "logits" ([rows, ...]), on the
  /// accelerator's device like the batch. Uses the wrapped model, after prepare(), with gradients.
  /// *Collective*, together with its backward. May throw what the model throws; UsageError if the outputs are
  /// invalid.
  virtual Batch forward(const Batch& batch) = 0;
  /// The same outputs from the unwrapped model, after place(). *Local*: ranks may have different numbers of
  /// batches, so it must not wait for another rank.
  virtual Batch evaluate(const Batch& batch) = 0;
  /// Whether the parameters are sharded over the ranks: evaluate() is then *Collective*, and every rank calls
  /// it the same number of times.
  virtual bool is_fully_sharded() const { return false; }
  /// Until the result is destroyed, parameters() are unsharded, and evaluate() is *Local* even for a fully
  /// sharded model. *Collective*.
  virtual std::shared_ptr<void> full_parameters(const Accelerator& /*accelerator*/) { return nullptr; }
  /// Selects training mode (`on`) or evaluation mode. *Local*.
  virtual void train(bool on) = 0;
  /// Of each of its modules, in a fixed order, whether it is in training mode: recorded steps are recorded
  /// anew when one changes. Empty if that is not known, as by default. *Local*.
  virtual std::vector<bool> training_modes() { return {}; }
  /// Backward recomputes the activations of the model's units, which are not kept; see
  /// set_activation_checkpointing(). *Local*. Throws UsageError if the model has no units.
  virtual void set_activation_checkpointing() {
    throw UsageError(
        "gradient_checkpointing: this model has no units whose activations can be computed again");
  }
  /// Sets TrainingArguments::label_smoothing_factor in a model that computes its loss itself. False if its
  /// outputs have no such loss: Trainer then computes it from "logits". *Local*.
  virtual bool set_label_smoothing(double /*factor*/) { return false; }
  /// Converts floating-point parameters and buffers to that dtype, in place, for an evaluation in half
  /// precision. *Local*.
  virtual void to(at::ScalarType dtype) = 0;

  /// Parameters and buffers by name: the model's own tensors, not copies, in the same order on every rank.
  /// *Local*.
  virtual std::vector<NamedTensor> parameters() = 0;
  virtual std::vector<NamedTensor> buffers() = 0;
  /// Names of normalization layers, with a trailing dot: see layer_norms_of(). *Local*.
  virtual std::vector<std::string> layer_norms() = 0;
  /// Names of embeddings. Their weights are looked up, not multiplied, so they do not count as operations.
  /// Empty by default. *Local*.
  virtual std::vector<std::string> embeddings() { return {}; }

  /// The model's adapter (models::add_lora), which save() then writes alone. None by default. *Local*.
  virtual std::optional<parallel::AdapterForm> adapter() { return std::nullopt; }

  /// Writes model.safetensors to `folder`, as Accelerator::save_model does. *Collective*. Throws Error if it
  /// cannot be written.
  virtual void save(const Accelerator& accelerator, const std::filesystem::path& folder) = 0;
  /// Reads the weights of a file or a folder into the model, as Accelerator::load_model does. *Collective*.
  /// Throws DataError if the weights are of another model.
  virtual void load(const Accelerator& accelerator, const std::filesystem::path& path) = 0;
};

/// The argument of wrap_model()'s function in an evaluation: called like the wrapped model, in the same
/// precision, without a wrapper. *Local*.
template <class Module>
class BareModel {
 public:
  /// The module must outlive it. Its forward computes in `precision` on `device`.
  BareModel(Module& module, const at::Device& device, MixedPrecision precision)
      : module_(module), device_(device), precision_(precision) {}

  /// The module's forward. With mixed precision, its result becomes float32, as in training.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return in_precision(device_, precision_, [&] { return run(std::forward<Inputs>(inputs)...); });
  }
  /// The same, by PyTorch's name.
  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    return (*this)(std::forward<Inputs>(inputs)...);
  }
  /// The module's holder, for everything but forward.
  Module& module() { return module_; }

 private:
  template <class... Inputs>
  auto run(Inputs&&... inputs) {
    auto& module = parallel::module_of(module_);
    if constexpr (requires { module.forward(std::forward<Inputs>(inputs)...); }) {
      return module.forward(std::forward<Inputs>(inputs)...);
    } else {
      return module.forward({std::forward<Inputs>(inputs)...});  // TorchScript takes a list of values.
    }
  }

  Module& module_;
  at::Device device_;
  MixedPrecision precision_;
};

/// The adapter of a module and a function that calls it; see wrap_model().
template <class Module, class Forward>
class ModelWrapper final : public ModelAdapter {
 public:
  /// `module` is a holder: the adapter shares the module with the program. *Local*.
  ModelWrapper(Module module, Forward forward) : module_(std::move(module)), forward_(std::move(forward)) {}

  // ModelAdapter's methods, implemented by the Accelerator or the module.

  void prepare(Accelerator& accelerator) override {
    prepared_.reset();
    prepared_.emplace(accelerator.prepare(module_));
  }
  void place(const Accelerator& accelerator) override {
    device_ = accelerator.device();
    precision_ = accelerator.mixed_precision();
    parallel::module_of(module_).to(device_);
  }
  Batch forward(const Batch& batch) override { return forward_(*prepared_, batch); }
  bool is_fully_sharded() const override { return prepared_ && prepared_->is_fully_sharded(); }
  Batch evaluate(const Batch& batch) override {
    if (is_fully_sharded()) return forward_(*prepared_, batch);
    BareModel<Module> model(module_, device_, precision_);
    return forward_(model, batch);
  }
  std::shared_ptr<void> full_parameters(const Accelerator& accelerator) override {
    return accelerator.full_parameters(module_);
  }
  void train(bool on) override { parallel::module_of(module_).train(on); }
  std::vector<bool> training_modes() override {
    std::vector<bool> modes;
    auto& whole = parallel::module_of(module_);
    if constexpr (requires { whole.modules(); }) {
      for (const auto& part : whole.modules()) {
        if constexpr (requires { part->is_training(); }) {
          modes.push_back(part->is_training());
        } else {
          modes.push_back(part.is_training());  // TorchScript's are values.
        }
      }
    } else {
      modes.push_back(whole.is_training());
    }
    return modes;
  }
  void set_activation_checkpointing() override { lockstep::set_activation_checkpointing(module_); }
  bool set_label_smoothing(double factor) override {
    if constexpr (requires { forward_.set_label_smoothing(factor); }) {
      forward_.set_label_smoothing(factor);
      return true;
    }
    return false;
  }
  void to(at::ScalarType dtype) override {
    // Module::to(dtype) converts integers too.
    for (const auto& list : {parameters(), buffers()}) {
      for (const auto& entry : list) {
        if (entry.tensor.is_floating_point()) entry.tensor.set_data(entry.tensor.detach().to(dtype));
      }
    }
  }
  std::vector<NamedTensor> parameters() override { return parallel::named_parameters_of(module_); }
  std::vector<NamedTensor> buffers() override { return parallel::named_buffers_of(module_); }
  std::vector<std::string> layer_norms() override { return optim::layer_norms_of(module_); }
  std::vector<std::string> embeddings() override { return parallel::children_of_class(module_, "Embedding"); }
  std::optional<parallel::AdapterForm> adapter() override { return parallel::adapter_of(module_); }
  void save(const Accelerator& accelerator, const std::filesystem::path& folder) override {
    accelerator.save_model(module_, folder);
  }
  void load(const Accelerator& accelerator, const std::filesystem::path& path) override {
    accelerator.load_model(module_, path);
  }

 private:
  Module module_;
  Forward forward_;
  at::Device device_ = at::Device(at::kCPU);
  MixedPrecision precision_ = MixedPrecision::no;
  std::optional<AcceleratedModel<Module>> prepared_;
};

/// Creates a Trainer's model from a `torch::nn` module (its holder) and a function that computes the outputs
/// for a batch. `forward` is called with the wrapped model in training and with a BareModel in evaluations,
/// so its first parameter is `auto&`:
///
///     auto model = lockstep::wrap_model(net, [](auto& model, const lockstep::Batch& batch) {
///       const at::Tensor logits = model(batch["image"]);
///       return lockstep::Batch{{"loss", F::cross_entropy(logits, batch["label"])}, {"logits", logits}};
///     });
///
/// Trainer::compute_loss uses the output "loss" by default. predict() and metrics get the outputs with as
/// many rows as the batch. A function object whose outputs have a loss with label smoothing has the method
/// set_label_smoothing(double). *Local*.
template <class Module, class Forward>
std::shared_ptr<ModelAdapter> wrap_model(Module module, Forward forward) {
  constexpr bool is_module = parallel::ModuleLike<Module>;
  static_assert(is_module, "wrap_model() takes a module (its holder) and a function");
  if constexpr (is_module) {
    constexpr bool takes_both =
        std::is_invocable_r_v<Batch, Forward&, AcceleratedModel<Module>&, const Batch&> &&
        std::is_invocable_r_v<Batch, Forward&, BareModel<Module>&, const Batch&>;
    static_assert(
        takes_both,
        "wrap_model() calls its function with the wrapped model and with the bare one, and takes the "
        "outputs by name: expected [](auto& model, const Batch& batch) -> Batch");
    if constexpr (takes_both)
      return std::make_shared<ModelWrapper<Module, Forward>>(std::move(module), std::move(forward));
  }
  return nullptr;
}

/// The model of a Trainer: the result of wrap_model(), or a module (its holder) whose forward takes a batch
/// and returns outputs by name:
///
///     struct NetImpl : torch::nn::Module {
///       lockstep::Batch forward(const lockstep::Batch& batch);
///     };
///     TORCH_MODULE(Net);
///     lockstep::Trainer trainer(args, {.model = Net(), .train_dataset = train});
///
/// A handle.
class TrainerModel {
 public:
  TrainerModel(std::nullptr_t) {}
  template <std::derived_from<ModelAdapter> Own>
  TrainerModel(std::shared_ptr<Own> model) : model_(std::move(model)) {}
  template <parallel::ModuleLike Module>
  TrainerModel(Module module) {
    constexpr bool takes_batch = requires(const Batch& batch) {
      { parallel::module_of(module).forward(batch) } -> std::same_as<Batch>;
    };
    static_assert(takes_batch,
                  "a model of Trainer has `Batch forward(const Batch& batch)`; for any other: wrap_model()");
    if constexpr (takes_batch)
      model_ = wrap_model(std::move(module), [](auto& model, const Batch& batch) { return model(batch); });
  }

  explicit operator bool() const noexcept { return model_ != nullptr; }
  ModelAdapter& operator*() const noexcept { return *model_; }
  ModelAdapter* operator->() const noexcept { return model_.get(); }

 private:
  std::shared_ptr<ModelAdapter> model_;
};

}  // namespace lockstep
