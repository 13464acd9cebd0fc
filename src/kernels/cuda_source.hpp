#pragma once

#include <string>
#include <vector>

namespace lockstep::kernels {

/// The text of a file of kernels/cuda, which is part of the library.
struct CudaSource {
  std::string name;
  std::string text;
};

/// All of them.
const std::vector<CudaSource>& cuda_sources();

/// What NVRTC compiles: arguments.cu, prelude.cu and then the source of this name, "cross_entropy". Throws
/// UsageError if there is none. *Local*.
std::string cuda_text(const std::string& name);

}  // namespace lockstep::kernels
