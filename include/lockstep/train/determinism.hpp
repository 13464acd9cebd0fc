#pragma once

namespace lockstep {

/// Has LibTorch, cuDNN, cuBLAS and NCCL give the same bits in every run with the same devices and ranks:
/// LibTorch throws for an operation that cannot (torch.use_deterministic_algorithms(True)), cuDNN neither
/// measures nor takes such algorithms, and CUBLAS_WORKSPACE_CONFIG, NCCL_ALGO and NCCL_PROTO get fixed values
/// where the environment has none. Those libraries read them once, so call it before anything uses a GPU and
/// before the process group is made; AcceleratorOptions::deterministic does. *Local*. Not to be called while
/// another thread reads the environment.
void use_deterministic_operations();

}  // namespace lockstep
