#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "kernels/cubin_cache.hpp"
#include "kernels/nvrtc.hpp"

namespace lockstep::kernels {

/// A kernel for a GPU.
struct KernelOfGpu {
  /// As of find_kernel(): "cross_entropy", "cross_entropy<bf16, true>".
  std::string source, instance;
  /// "sm_90".
  std::string architecture;
};

/// Kernels that were compiled when Lockstep was packaged (scripts/make_kernels.py), as files of a CubinCache.
class PackagedCubins {
 public:
  /// `folder`: may be missing.
  explicit PackagedCubins(std::filesystem::path folder) : files_(std::move(folder)) {}

  /// The kernel as it was compiled for the GPU's architecture, or for an earlier one of the same generation,
  /// whose code the GPU runs as well: that for sm_80 on sm_86. Nothing if there is none, if it was compiled
  /// of another text than this library's, or if its file is damaged. Any thread.
  std::optional<Cubin> find(const KernelOfGpu& kernel) const;

 private:
  CubinCache files_;
};

/// "lockstep/kernels" beside this library.
std::filesystem::path packaged_cubin_folder();

/// Gives the code to the driver; throws if the driver refuses it.
using LoadCubin = std::function<void*(const Cubin&)>;

/// Loads the packaged kernel. If there is none, or the driver refuses it, because it is older than the
/// compiler of the package: that of the cache, where it is compiled if necessary. Returns what `load` does.
/// Throws Error if that fails. Any thread.
void* load_or_compile(const KernelOfGpu& kernel, const PackagedCubins& packaged, const CubinCache& cache,
                      const LoadCubin& load);

}  // namespace lockstep::kernels
