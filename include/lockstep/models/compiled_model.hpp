#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::models {

/// A model that Python has compiled ahead of time to machine code, for inference: a package of AOTInductor
/// (`torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs), package_path="net.pt2")`).
/// It runs without Python and without TorchScript, on the kind of processor or GPU that it was compiled for.
/// It cannot be trained.
///
///     lockstep::models::CompiledModel model("net.pt2");
///     const at::Tensor logits = model({images}).front();
///
/// A package names libtorch.so, which is then loaded too: with the Python wheel of LibTorch that brings
/// CUDA's libraries into a process that has no use for them. Compiled with
/// inductor_configs={"aot_inductor.link_libtorch": False} it needs what is loaded anyway and nothing more.
///
/// Inputs must have the dtypes, and the shapes but for dynamic dimensions, that the model was exported with:
/// the compiled code checks them not at all or with errors of its own.
class CompiledModel {
 public:
  /// The package is unpacked into a folder under the temporary one, which LibTorch removes with the object,
  /// and its library is loaded into the process. With `runners` above 1 as many threads may call at once.
  /// *Local*. Throws DataError for any other file, saying what it is, and for a package that this machine
  /// cannot load, with the reason.
  ///
  /// A package for GPUs runs on CUDA device `device_index`, -1 being the one that is current now, and leaves
  /// the current device as it is. Throws UsageError for a device that is not there.
  explicit CompiledModel(const std::filesystem::path& path, std::size_t runners = 1, int device_index = -1);
  ~CompiledModel();
  CompiledModel(CompiledModel&&) noexcept;
  CompiledModel& operator=(CompiledModel&&) noexcept;

  /// The outputs, in the order of the exported model's. No gradients. *Local*. Throws Error when the compiled
  /// code fails.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;

  /// The device that it was compiled for, as the package says: "cpu", "cuda".
  std::string device() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::models
