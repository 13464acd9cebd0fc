#pragma once

namespace lockstep {

/// How the ranks' values are reduced, element by element. Names as in torch.distributed.ReduceOp. Unlike
/// there, `avg` also works for CPU tensors (floating point only). Complex numbers have only `sum` and `avg`.
/// Bitwise operations are for integers only and not supported by NCCL.
enum class ReduceOp { sum, avg, product, min, max, bit_and, bit_or, bit_xor };

}  // namespace lockstep
