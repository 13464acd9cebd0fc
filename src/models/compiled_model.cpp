#include "lockstep/models/compiled_model.hpp"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "core/first_line.hpp"
#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/model_file.hpp"

namespace lockstep::models {
namespace {

using Loader = torch::inductor::AOTIModelPackageLoader;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::exception& error) {
  throw DataError(
      "'" + path.string() + "' cannot be loaded: " + first_line_of(error.what()) +
      ". A package runs on the kind of machine that it was compiled for, with the same LibTorch.");
}

/// A package depends on libtorch.so, unless it was compiled without it. The library is in the folder of the
/// part of LibTorch that this process has loaded, where the dynamic linker does not search.
void load_whole_libtorch() {
  Dl_info part{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &part) == 0) return;
  const auto whole = std::filesystem::path(part.dli_fname).parent_path() / "libtorch.so";
  ::dlopen(whole.c_str(), RTLD_NOW | RTLD_GLOBAL);  // If it fails, the package reports what is missing.
}

/// The device that must be current for the compiled code, which may change it; none if this process has no
/// GPU.
std::optional<at::Device> gpu(int index) {
  const int count = cuda_device_count();
  if (index >= count || index < -1) {
    throw UsageError(
        fmt::format("CompiledModel: CUDA device {} was requested, but this process can use {}. The first is "
                    "number 0; -1 is the current one",
                    index, count));
  }
  if (count == 0) return std::nullopt;
  if (index < 0) return c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

struct Settings {
  std::size_t runners;
  int device_index;
};

std::unique_ptr<Loader> open(const std::filesystem::path& path, const Settings& settings) {
  return std::make_unique<Loader>(path.string(), "model", /*run_single_threaded=*/false, settings.runners,
                                  static_cast<c10::DeviceIndex>(settings.device_index));
}

std::unique_ptr<Loader> load(const std::filesystem::path& path, const Settings& settings,
                             const std::optional<at::Device>& device) {
  require_kind(path, ModelFileKind::aot_inductor);
  const c10::OptionalDeviceGuard guard(device);
  try {
    return open(path, settings);
  } catch (const std::exception& error) {
    if (first_line_of(error.what()).find("libtorch.so") == std::string::npos) refuse(path, error);
  }
  load_whole_libtorch();
  try {
    return open(path, settings);
  } catch (const std::exception& error) {
    refuse(path, error);
  }
}

}  // namespace

struct CompiledModel::Impl {
  std::optional<at::Device> device;
  std::unique_ptr<Loader> loader;
};

CompiledModel::CompiledModel(const std::filesystem::path& path, std::size_t runners, int device_index)
    : impl_(std::make_unique<Impl>(Impl{gpu(device_index), nullptr})) {
  impl_->loader = load(path, {runners, device_index}, impl_->device);
}
CompiledModel::~CompiledModel() = default;
CompiledModel::CompiledModel(CompiledModel&&) noexcept = default;
CompiledModel& CompiledModel::operator=(CompiledModel&&) noexcept = default;

std::vector<at::Tensor> CompiledModel::operator()(const std::vector<at::Tensor>& inputs) const {
  const at::NoGradGuard no_grad;
  const c10::OptionalDeviceGuard guard(impl_->device);
  try {
    return impl_->loader->run(inputs);
  } catch (const std::exception& error) {
    throw Error("the compiled model failed: " + first_line_of(error.what()));
  }
}

std::string CompiledModel::device() const {
  const auto metadata = impl_->loader->get_metadata();
  const auto found = metadata.find("AOTI_DEVICE_KEY");
  return found != metadata.end() ? found->second : "";
}

}  // namespace lockstep::models
