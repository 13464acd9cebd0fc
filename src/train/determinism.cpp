#include "lockstep/train/determinism.hpp"

#include <ATen/Context.h>

#include "lockstep/core/environment.hpp"

namespace lockstep {

void use_deterministic_operations() {
  // One of the two workspace settings with which NVIDIA's manual promises reproducible results.
  set_default_variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  // NCCL selects algorithms by measuring the machine, and the order of its sums depends on the algorithm.
  set_default_variable("NCCL_ALGO", "Ring");
  set_default_variable("NCCL_PROTO", "Simple");
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

}  // namespace lockstep
