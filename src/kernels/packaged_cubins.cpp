#include "kernels/packaged_cubins.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <exception>

#include "core/text.hpp"
#include "kernels/cuda_source.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::kernels {
namespace {

/// scripts/make_kernels.py makes the same.
std::string packaged_key(const KernelOfGpu& kernel, const std::string& architecture) {
  return fmt::format("packaged\n{}\n{}\n{}", architecture, kernel.instance, cuda_text(kernel.source));
}

Cubin cached_or_compiled(const KernelOfGpu& kernel, const CubinCache& cache) {
  const std::string text = cuda_text(kernel.source);
  const std::string key =
      fmt::format("{}\n{}\n{}\n{}", nvrtc_version(), kernel.architecture, kernel.instance, text);
  return cache.get(key, [&] { return compile_cuda(text, kernel.instance, kernel.architecture); });
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

void* load_or_compile(const KernelOfGpu& kernel, const PackagedCubins& packaged, const CubinCache& cache,
                      const LoadCubin& load) {
  std::string refused;
  if (const auto found = packaged.find(kernel)) {
    try {
      return load(*found);
    } catch (const std::exception& error) {
      refused = error.what();
    }
  }
  try {
    return load(cached_or_compiled(kernel, cache));
  } catch (const std::exception& error) {
    if (refused.empty()) throw;
    throw Error(
        fmt::format("{}; the code that came with the package cannot be loaded: {}", error.what(), refused));
  }
}

}  // namespace lockstep::kernels
