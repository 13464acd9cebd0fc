#pragma once

namespace lockstep {

/// How the ranks' values are combined, element by element. Names as in torch.distributed.ReduceOp, but that
/// `avg` works for CPU tensors too (floating point only), and bitwise operations are for integers and are not
/// known to NCCL.
enum class ReduceOp { sum, avg, product, min, max, bit_and, bit_or, bit_xor };

}  // namespace lockstep
