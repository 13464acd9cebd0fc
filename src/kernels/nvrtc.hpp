#pragma once

#include <string>
#include <vector>

namespace lockstep::kernels {

/// A kernel as machine code of one architecture.
struct Cubin {
  /// The kernel's name in `bytes`.
  std::string symbol;
  std::string bytes;
};

/// NVIDIA's compiler as a library, which is beside LibTorch. It needs neither a GPU nor its driver. Loaded
/// with dlopen() at the first call; throws Error if there is none. Any thread.
///
/// "13.0".
std::string nvrtc_version();

/// Compiles one instance of a template, "cross_entropy<bf16>", for an architecture, "sm_90". `options`: more
/// of NVRTC's. `log`: if not null, what the compiler said. Throws Error with the first error of the log.
Cubin compile_cuda(const std::string& text, const std::string& instance, const std::string& architecture,
                   const std::vector<std::string>& options = {}, std::string* log = nullptr);

}  // namespace lockstep::kernels
