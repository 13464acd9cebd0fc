#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::models {

/// A model that Python compiled ahead of time to machine code, for inference: an AOTInductor package
/// (`torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs), package_path="net.pt2")`).
/// It runs without Python and without TorchScript, on the type of processor or GPU that it was compiled for.
/// It cannot be trained.
///
///     lockstep::models::CompiledModel model("net.pt2");
///     const at::Tensor logits = model({images}).front();
///
/// A package depends on libtorch.so, which is then loaded too. With LibTorch from the Python wheel, this also
/// loads CUDA's libraries into a process that does not need them. A package compiled with
/// inductor_configs={"aot_inductor.link_libtorch": False} needs no further libraries.
///
/// Inputs must have the dtypes with which the model was exported, and its shapes except for dynamic
/// dimensions: the compiled code does not check them, or throws its own errors.
class CompiledModel {
 public:
  /// The package is unpacked into a temporary folder, which LibTorch removes with the object, and its library
  /// is loaded into the process. `runners` is the number of threads that may call it at once. *Local*. Throws
  /// DataError for any other kind of file, which it names, and for a package that this machine cannot load,
  /// with the reason.
  ///
  /// A package for GPUs runs on CUDA device `device_index` (-1: the current device at construction), and does
  /// not change the current device. Throws UsageError if the device does not exist.
  explicit CompiledModel(const std::filesystem::path& path, std::size_t runners = 1, int device_index = -1);
  ~CompiledModel();
  CompiledModel(CompiledModel&&) noexcept;
  CompiledModel& operator=(CompiledModel&&) noexcept;

  /// The outputs, in the order of the exported model's. No gradients. *Local*. Throws Error if the compiled
  /// code fails.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;

  /// The type of device that it was compiled for, as recorded in the package: "cpu", "cuda".
  std::string device() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::models
