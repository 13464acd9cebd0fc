#include "kernels/packaged_cubins.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include "core/text.hpp"
#include "kernels/cuda_source.hpp"

namespace lockstep::kernels {
namespace {

/// scripts/make_kernels.py makes the same.
std::string packaged_key(const KernelOfGpu& kernel, const std::string& architecture) {
  return fmt::format("packaged\n{}\n{}\n{}", architecture, kernel.instance, cuda_text(kernel.source));
}

}  // namespace

std::optional<Cubin> PackagedCubins::find(const KernelOfGpu& kernel) const {
  const std::string prefix = "sm_";
  if (!kernel.architecture.starts_with(prefix)) return std::nullopt;
  const auto number = parse_whole_number(kernel.architecture.substr(prefix.size()));
  if (!number) return std::nullopt;
  for (int one = *number; one >= *number / 10 * 10; --one) {
    if (auto found = files_.find(packaged_key(kernel, prefix + std::to_string(one)))) return found;
  }
  return std::nullopt;
}

std::filesystem::path packaged_cubin_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&packaged_cubin_folder), &info) == 0 || info.dli_fname == nullptr)
    return {};
  return std::filesystem::path(info.dli_fname).parent_path() / "lockstep" / "kernels";
}

Cubin find_or_compile(const KernelOfGpu& kernel, const PackagedCubins& packaged, const CubinCache& cache) {
  if (auto found = packaged.find(kernel)) return std::move(*found);
  const std::string text = cuda_text(kernel.source);
  const std::string key =
      fmt::format("{}\n{}\n{}\n{}", nvrtc_version(), kernel.architecture, kernel.instance, text);
  return cache.get(key, [&] { return compile_cuda(text, kernel.instance, kernel.architecture); });
}

}  // namespace lockstep::kernels
