#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::models {

namespace compiled {
struct StepProgram;
}

/// A module of Python's that trains without Python: forward, backward and the forward of evaluation, as
/// `lockstep_export.py` writes them to a folder (share/lockstep of an installation). Two kinds:
///
/// - exact: the calls of ATen's operations that Python made, one after the other. Outputs, gradients and
///   random numbers have the bits of eager PyTorch. For any machine with the same version of LibTorch.
/// - otherwise machine code by AOTInductor, which joins operations and so rounds differently. For processors
///   that have the instructions of the one on which it was exported.
///
/// A `torch::nn::Module` with the parameters and buffers of Python's, by the same names, so everything that
/// takes one does: DistributedDataParallel, optimizers, clipping, checkpoints, save_model, which Python loads
/// with load_state_dict.
///
///     lockstep::models::CompiledStep step("out/net");
///     lockstep::optim::AdamW optimizer(step->parameters(), {.lr = 1e-3});
///     auto [ddp, opt] = accelerator.prepare(step, optimizer);
///     accelerator.backward(ddp(images, labels).front());
///
/// Shapes are those of the export, and so is the dtype: autocast has no effect inside. All gradients come at
/// the end of backward, so averaging them does not overlap with it. On the CPU only. Link
/// `lockstep::compiled` (or `lockstep::lockstep`, which has it). One thread at a time.
class CompiledStepImpl : public torch::nn::Module {
 public:
  /// Loads the folder, with the parameters that the Python module had. The folder is a program: load only
  /// your own. *Local*. Throws DataError, with the file and the reason, if it is damaged or not one export,
  /// if it was exported with another LibTorch or for another kind of processor, and if the machine code
  /// cannot be loaded.
  explicit CompiledStepImpl(const std::filesystem::path& folder);
  ~CompiledStepImpl() override;

  /// The outputs of the Python module's forward, in its order (of a dictionary or a nested result: that of
  /// torch.utils._pytree). In training mode, buffers change as in Python, and the outputs have gradients with
  /// respect to the parameters that required them at the export, but no second derivatives. In evaluation
  /// mode they have none.
  ///
  /// *Local*. Throws UsageError if an input or a parameter has another shape, dtype or device than at the
  /// export, if an input requires gradients, or a parameter does that did not; Error if the code fails.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs);
  template <std::convertible_to<at::Tensor>... Inputs>
  std::vector<at::Tensor> forward(const Inputs&... inputs) {
    return forward(std::vector<at::Tensor>{inputs...});
  }

  /// Names of the outputs: keys of a dictionary, numbers of a tuple, "" of a single tensor.
  const std::vector<std::string>& output_names() const noexcept;
  /// Whether it has the bits of eager PyTorch.
  bool is_exact() const noexcept;

 private:
  void check_inputs(const std::vector<at::Tensor>& inputs) const;
  void check_state() const;

  std::shared_ptr<const compiled::StepProgram> program_;
  std::vector<at::Tensor> parameters_and_buffers_;
};
TORCH_MODULE(CompiledStep);

}  // namespace lockstep::models
