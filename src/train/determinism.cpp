#include "lockstep/train/determinism.hpp"

#include <ATen/Context.h>

#include "lockstep/core/environment.hpp"

namespace lockstep {

void use_deterministic_operations() {
  // Two of cuBLAS's workspaces, as NVIDIA's manual has it for equal results.
  set_default_variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  // NCCL chooses by its measurements of the machine, and the order of its sums follows the choice.
  set_default_variable("NCCL_ALGO", "Ring");
  set_default_variable("NCCL_PROTO", "Simple");
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

}  // namespace lockstep
