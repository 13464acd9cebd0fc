#pragma once

namespace lockstep {

/// Makes LibTorch, cuDNN, cuBLAS and NCCL give the same bits in every run with the same devices and ranks.
/// LibTorch throws for an operation that cannot (torch.use_deterministic_algorithms(True)); cuDNN neither
/// benchmarks nor uses nondeterministic algorithms; CUBLAS_WORKSPACE_CONFIG, NCCL_ALGO and NCCL_PROTO get
/// fixed values unless they are set in the environment. The libraries read these variables once, so call it
/// before the first use of a GPU and before the process group is created, or set
/// AcceleratorOptions::deterministic. *Local*. Do not call it while another thread reads the environment.
void use_deterministic_operations();

}  // namespace lockstep
