#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::models {

// Weights of four bits (QLoRA, Dettmers et al., 2023), with the bits of bitsandbytes. Models have them by
// FromPretrainedOptions::quantization, or because their folder has.

/// How weights are quantized.
struct Nf4Options {
  /// The scale of each block is quantized as well, to eight bits: 4.13 bits a weight instead of 4.5.
  bool double_quant = true;
  /// The dtype of products; none: that of the input, or of autocast.
  std::optional<at::ScalarType> compute_dtype = {};

  bool operator==(const Nf4Options&) const = default;
};

/// A quantized weight. Block i, of 64 elements in the order of memory, is a scale times 16 levels
/// (nf4_levels()). The scale is absmax[i], or, quantized again, the sum of `offset` and nested_absmax[i /
/// 256] times level absmax[i] of 256 (nested_levels()).
struct Nf4Weight {
  /// uint8 [(elements + 1) / 2, 1]: the levels of two elements, the first in the upper four bits.
  at::Tensor packed;
  /// [blocks]: uint8 levels, or, if `nested_absmax` is undefined, float32 scales.
  at::Tensor absmax;
  /// float32 [(blocks + 255) / 256], or undefined.
  at::Tensor nested_absmax = {};
  double offset = 0;
  /// The shape and the dtype before.
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
};

/// Elements that have a scale in common, and scales that have one.
inline constexpr std::int64_t kNf4Block = 64, kNf4NestedBlock = 256;

/// Quantizes `values`, float32, bfloat16 or float16 of any shape. *Local*. Throws UsageError for others.
Nf4Weight quantize_nf4(const at::Tensor& values, bool double_quant = true);

/// The values, computed in float32 and rounded to `dtype`. Without a graph. *Local*.
at::Tensor dequantize_nf4(const Nf4Weight& weight, at::ScalarType dtype);

/// float32 [16]: quantiles of a normal distribution, from -1 to 1.
at::Tensor nf4_levels();
/// float32 [256], from -0.993 to 1: a sign, an exponent of ten and a fraction.
at::Tensor nested_levels();

}  // namespace lockstep::models
