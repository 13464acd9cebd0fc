#include "lockstep/models/compiled_model.hpp"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "lockstep/core/error.hpp"
#include "lockstep/models/model_file.hpp"

namespace lockstep::models {
namespace {

using Loader = torch::inductor::AOTIModelPackageLoader;

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::exception& error) {
  throw DataError(
      "'" + path.string() + "' cannot be loaded: " + first_line(error) +
      ". A package runs on the kind of machine that it was compiled for, with the same LibTorch.");
}

/// A package names libtorch.so, unless it was compiled without. It lies beside the part of LibTorch that this
/// process has loaded, where the dynamic linker does not look by itself.
void load_whole_libtorch() {
  Dl_info part{};
  if (::dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &part) == 0) return;
  const auto whole = std::filesystem::path(part.dli_fname).parent_path() / "libtorch.so";
  ::dlopen(whole.c_str(), RTLD_NOW | RTLD_GLOBAL);  // Where it fails, the package says what is missing.
}

std::unique_ptr<Loader> open(const std::filesystem::path& path, std::size_t runners) {
  return std::make_unique<Loader>(path.string(), "model", /*run_single_threaded=*/false, runners);
}

std::unique_ptr<Loader> load(const std::filesystem::path& path, std::size_t runners) {
  require_kind(path, ModelFileKind::aot_inductor);
  try {
    return open(path, runners);
  } catch (const std::exception& error) {
    if (first_line(error).find("libtorch.so") == std::string::npos) refuse(path, error);
  }
  load_whole_libtorch();
  try {
    return open(path, runners);
  } catch (const std::exception& error) {
    refuse(path, error);
  }
}

}  // namespace

struct CompiledModel::Impl {
  std::unique_ptr<Loader> loader;
};

CompiledModel::CompiledModel(const std::filesystem::path& path, std::size_t runners)
    : impl_(std::make_unique<Impl>(Impl{load(path, runners)})) {}
CompiledModel::~CompiledModel() = default;
CompiledModel::CompiledModel(CompiledModel&&) noexcept = default;
CompiledModel& CompiledModel::operator=(CompiledModel&&) noexcept = default;

std::vector<at::Tensor> CompiledModel::operator()(const std::vector<at::Tensor>& inputs) const {
  const at::NoGradGuard no_grad;
  try {
    return impl_->loader->run(inputs);
  } catch (const std::exception& error) {
    throw Error("the compiled model failed: " + first_line(error));
  }
}

std::string CompiledModel::device() const {
  const auto metadata = impl_->loader->get_metadata();
  const auto found = metadata.find("AOTI_DEVICE_KEY");
  return found != metadata.end() ? found->second : "";
}

}  // namespace lockstep::models
