#pragma once

#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::models {

/// Reads a TorchScript file that Python wrote (`torch.jit.script(model).save(path)`, or `torch.jit.trace`)
/// onto a device. The result fits wherever Lockstep takes a module: DistributedDataParallel, DataParallel,
/// Accelerator::prepare and prepare_for_evaluation, save_model, checkpoints. *Local*. Throws DataError for
/// any other file, saying what it is.
torch::jit::Module load_torch_script(const std::filesystem::path& path, const at::Device& device = at::kCPU);

/// The tensor in what a TorchScript module returned: itself, the first of a tuple, or a dictionary's
/// "logits". *Local*. Throws DataError for anything else.
at::Tensor main_tensor(const c10::IValue& value);

/// A TorchScript module whose forward returns main_tensor() of what the program returns: for code that was
/// written for `torch::nn` modules with one output. A handle; copies are the same module.
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

  /// Throws what the program throws, and DataError where its result has no main tensor.
  template <class... Inputs>
  at::Tensor forward(const Inputs&... inputs) {
    return main_tensor(module_.forward({inputs...}));
  }

  /// Of the first inputs() of these, for programs that may take fewer.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);
  /// How many tensors forward takes, those that it can do without among them.
  std::size_t inputs() const;

  auto named_parameters() const { return module_.named_parameters(); }
  auto named_buffers() const { return module_.named_buffers(); }
  auto named_modules() const { return module_.named_modules(); }
  /// Those that are trained, each once.
  std::vector<at::Tensor> parameters() const;

  void to(const at::Device& device) { module_.to(device); }
  /// Floating-point tensors alone; indices stay what they are.
  void to(at::ScalarType dtype);
  /// Nothing for a program that torch.jit.freeze has frozen: it has no modes.
  void train(bool on = true) {
    if (module_.hasattr("training")) module_.train(on);
  }
  void eval() { train(false); }
  bool is_training() const { return module_.is_training(); }
  ScriptModel deepcopy() const { return ScriptModel(module_.deepcopy()); }

  /// Runs the program once on these inputs, in evaluation mode, so that one that does not fit is found out
  /// before the training. Returns its main tensor; throws UsageError, which begins with `what`, unless that
  /// has these sizes (-1: any).
  at::Tensor check_fits(const std::vector<at::Tensor>& inputs, at::IntArrayRef expected,
                        const std::string& what);

  /// Writes the program with its weights, for Python's torch.jit.load and load_torch_script, whole or not at
  /// all. Throws as AtomicFile does.
  void save(const std::filesystem::path& path) const;

  torch::jit::Module& module() { return module_; }

 private:
  torch::jit::Module module_;
};

}  // namespace lockstep::models
