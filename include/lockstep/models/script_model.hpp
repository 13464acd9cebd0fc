#pragma once

#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::models {

/// Loads a TorchScript file that Python wrote (`torch.jit.script(model).save(path)`, or `torch.jit.trace`) to
/// a device. The result can be used wherever Lockstep takes a module: DistributedDataParallel, DataParallel,
/// Accelerator::prepare and prepare_for_evaluation, save_model, checkpoints. *Local*. Throws DataError for
/// any other kind of file, and names it.
torch::jit::Module load_torch_script(const std::filesystem::path& path, const at::Device& device = at::kCPU);

/// The main tensor in the result of a TorchScript module: the tensor itself, the first element of a tuple, or
/// a dictionary's "logits". *Local*. Throws DataError for anything else.
at::Tensor main_tensor(const c10::IValue& value);

/// A TorchScript module whose forward returns main_tensor() of the program's result, for code that is written
/// for `torch::nn` modules with one output. A handle; copies refer to the same module.
///
///     lockstep::models::ScriptModel model("net.pt");
///     lockstep::optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
///     auto [ddp, opt] = accelerator.prepare(model, optimizer);
///     accelerator.backward(torch::nn::functional::cross_entropy(ddp(images), labels));
///
/// One thread at a time for training; any threads for forward in evaluation. The methods are *Local*.
class ScriptModel {
 public:
  /// Throws as load_torch_script.
  explicit ScriptModel(const std::filesystem::path& path, const at::Device& device = at::kCPU)
      : ScriptModel(load_torch_script(path, device)) {}
  explicit ScriptModel(torch::jit::Module module) : module_(std::move(module)) {}

  /// Throws what the program throws, and DataError if its result has no main tensor.
  template <class... Inputs>
  at::Tensor forward(const Inputs&... inputs) {
    return main_tensor(module_.forward({inputs...}));
  }

  /// Uses the first inputs() of these, for programs that may take fewer.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);
  /// The number of tensors that forward takes, including optional ones.
  std::size_t inputs() const;

  auto named_parameters() const { return module_.named_parameters(); }
  auto named_buffers() const { return module_.named_buffers(); }
  auto named_modules() const { return module_.named_modules(); }
  /// The trained parameters, each once.
  std::vector<at::Tensor> parameters() const;

  void to(const at::Device& device) { module_.to(device); }
  /// Converts floating-point tensors only; indices keep their dtype.
  void to(at::ScalarType dtype);
  /// Does nothing for a program that torch.jit.freeze has frozen: it has no modes.
  void train(bool on = true) {
    if (module_.hasattr("training")) module_.train(on);
  }
  void eval() { train(false); }
  bool is_training() const { return module_.is_training(); }
  ScriptModel deepcopy() const { return ScriptModel(module_.deepcopy()); }

  /// Runs the program once on these inputs, in evaluation mode, to detect an unsuitable program before the
  /// training. Returns its main tensor. Throws UsageError, whose text begins with `what`, unless that has
  /// these sizes (-1: any).
  at::Tensor check_fits(const std::vector<at::Tensor>& inputs, at::IntArrayRef expected,
                        const std::string& what);

  /// Writes the program with its weights, for Python's torch.jit.load and load_torch_script. The file appears
  /// complete or not at all. Throws as AtomicFile does.
  void save(const std::filesystem::path& path) const;

  torch::jit::Module& module() { return module_; }

 private:
  torch::jit::Module module_;
};

}  // namespace lockstep::models
