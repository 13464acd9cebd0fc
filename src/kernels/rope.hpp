#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

/// Queries and keys, [rows, heads, tokens, size], and what turns them: cosines and sines
/// [tokens, rotated elements] or [rows, 1, tokens, rotated elements], whose second half repeats the first.
struct RopeTask {
  at::Tensor query, key;
  at::Tensor cos, sin;
};

struct TurnedHeads {
  at::Tensor query, key;
};

/// Whether the kernel takes them: queries and keys of a GPU in float16 or bfloat16, cosines and sines in
/// float32 or in the same, sizes that are multiples of 8, and of 16 for the elements that are rotated. False
/// also where the kernel cannot be compiled.
bool takes_rope(const RopeTask& task);

/// The first elements of each head turned by the angles of their token, the others as they are; with a graph.
/// Computed in float32 and rounded once. The results are [rows, tokens, heads, size] in memory. No second
/// derivatives.
TurnedHeads rope(const RopeTask& task);

}  // namespace lockstep::kernels
