#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::kernels {

/// Tables of a model: float32 [words, width], [places, width], and [types, width] or undefined.
struct EmbeddingTables {
  at::Tensor words, places, types = {};
};

/// Int64 [texts, tokens]. Without `types`, all have type 0.
struct EmbeddingIds {
  at::Tensor words, types = {};
  /// A word without a gradient; below 0: none.
  std::int64_t padding = -1;
};

/// Whether the kernels take them: on a GPU where fused kernels compute with the tables, which are dense and
/// whose width is a multiple of 4; and no more tokens in a text than places. False also where the kernels
/// cannot be compiled.
bool takes_embedding(const EmbeddingIds& ids, const EmbeddingTables& tables);

/// The row of each token's word, plus that of its type if there are types, plus that of its place in the
/// text: [texts, tokens, width] in float32, with the bits of LibTorch's embeddings. Ids that are not in the
/// tables are an error of the device, as there. Deterministic. No second derivatives.
at::Tensor embed_tokens(const EmbeddingIds& ids, const EmbeddingTables& tables);

}  // namespace lockstep::kernels
