#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/models/decoder.hpp"

namespace lockstep::models {

/// Cosines and sines, float32 [tokens, rotated elements] or [rows, 1, tokens, rotated elements]: those of a
/// head's second half repeat the first.
struct Rotation {
  at::Tensor cos, sin;
};

/// The positions of one RopeConfig. Its frequencies are float32 whatever the model's dtype: plain tensors,
/// which Module::to() and checkpoints do not see.
class Rope {
 public:
  /// `longest` is max_position_embeddings. Throws UsageError for a scaling that is not known or does not fit.
  Rope(const RopeConfig& config, std::int64_t head_dim, std::int64_t longest);

  /// `positions`: integers [tokens] or [rows, tokens].
  Rotation rotation_at(const at::Tensor& positions);

  /// The length from which on texts have other frequencies at all positions, so that what a cache has of
  /// shorter ones is of no use; none: 0.
  std::int64_t long_from() const { return long_from_; }

 private:
  at::Tensor frequencies_at(const at::Tensor& positions);

  RopeConfig config_;
  std::int64_t rotated_, longest_, long_from_ = 0;
  double factor_ = 1;
  /// Multiplies cosines and sines.
  double attention_factor_ = 1;
  /// On the device of the last call.
  at::Tensor frequencies_, long_frequencies_;
};

/// Queries and keys, [rows, heads, tokens, size].
struct Heads {
  at::Tensor query, key;
};

/// Rotates the first elements of each head, in the dtype that the heads and the rotation have together, or,
/// with `in_float32`, in float32 at least. The results have the dtype of the heads. In float16 and bfloat16
/// on a GPU by one fused kernel, in float32.
Heads rotate_both(const Heads& heads, const Rotation& rotation, bool in_float32 = false);

}  // namespace lockstep::models
