#include "lockstep/models/nf4.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.hpp"

// The order of operations is that of bitsandbytes on a CPU, whose bits these are:
//
// levels of 4 bits   x times 1 / absmax, in float32, and the level between whose midpoints it lies
// scales of 8 bits   the scales less their mean; x / absmax in a table of 65536 entries from -1 to 1, each
//                    with the level that is nearest to it. Of a block of zeros: level 0
// dequantizing       level times scale in float32, then rounded
//
// A scale that is quantized twice is level times scale plus mean, each rounded to float32.

namespace lockstep::models {
namespace {

constexpr std::int64_t kNestedTable = 65536;
/// Bytes that are dequantized at a time: a multiple of a block.
constexpr std::int64_t kBytesAtATime = std::int64_t{1} << 20;

/// [blocks, size], with zeros at the end.
at::Tensor in_blocks(const at::Tensor& values, std::int64_t size) {
  const auto count = values.numel(), blocks = (count + size - 1) / size;
  const at::Tensor flat = values.reshape(-1);
  const bool is_whole = blocks * size == count;
  return (is_whole ? flat : at::constant_pad_nd(flat, {0, blocks * size - count})).view({blocks, size});
}

at::Tensor midpoints(const at::Tensor& levels) {
  const auto count = levels.numel() - 1;
  return (levels.narrow(0, 0, count) + levels.narrow(0, 1, count)) / 2;
}

at::Tensor make_nested_levels() {
  std::vector<float> levels;
  for (int exponent = 0; exponent < 7; ++exponent) {
    const at::Tensor bounds = at::linspace(0.1, 1, (1 << exponent) + 1, at::kFloat);
    const at::Tensor scaled = midpoints(bounds) * std::pow(10.0, exponent - 6);
    for (std::int64_t i = 0; i < scaled.numel(); ++i) {
      levels.push_back(scaled[i].item<float>());
      levels.push_back(-levels.back());
    }
  }
  levels.push_back(0);
  levels.push_back(1);
  std::sort(levels.begin(), levels.end());
  return at::tensor(levels, at::kFloat);
}

/// For each entry of the table, the nearest level.
at::Tensor make_nested_table() {
  const at::Tensor values = at::arange(kNestedTable, at::kFloat) * (2.0F / 65535.0F) - 1;
  return at::bucketize(values, midpoints(nested_levels())).to(at::kByte);
}

struct Levels {
  at::Tensor levels, nested;
};

const Levels& levels_on_cpu() {
  static const Levels levels = {
      at::tensor({-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F,
                  -0.28444138169288635F, -0.18477343022823334F, -0.09105003625154495F, 0.0F,
                  0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F, 0.33791524171829224F,
                  0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1.0F},
                 at::kFloat),
      make_nested_levels()};
  return levels;
}

at::Tensor nested_table() {
  static const at::Tensor table = make_nested_table();
  return table;
}

void quantize_scales(Nf4Weight& weight) {
  const at::Tensor mean = weight.absmax.mean();
  const at::Tensor scales = in_blocks(weight.absmax - mean, kNf4NestedBlock);
  weight.nested_absmax = scales.abs().amax(1);
  const at::Tensor entries = ((scales / weight.nested_absmax.unsqueeze(1) + 1) * 32767.5 + 0.5)
                                 .nan_to_num(0)
                                 .clamp(0, kNestedTable - 1)
                                 .to(at::kLong);
  const at::Tensor levels = nested_table().to(entries.device()).index({entries});
  weight.absmax = levels.masked_fill(weight.nested_absmax.unsqueeze(1) == 0, 0)
                      .view(-1)
                      .narrow(0, 0, weight.absmax.numel())
                      .clone();
  weight.offset = mean.item<double>();
}

at::Tensor scales_of(const Nf4Weight& weight) {
  if (!weight.nested_absmax.defined()) return weight.absmax;
  const auto blocks = weight.absmax.numel();
  const at::Tensor levels =
      nested_levels().to(weight.absmax.device()).index_select(0, weight.absmax.to(at::kInt));
  const at::Tensor nested = weight.nested_absmax.repeat_interleave(kNf4NestedBlock).narrow(0, 0, blocks);
  return levels * nested + weight.offset;
}

}  // namespace

at::Tensor nf4_levels() { return levels_on_cpu().levels; }

at::Tensor nested_levels() { return levels_on_cpu().nested; }

Nf4Weight quantize_nf4(const at::Tensor& values, bool double_quant) {
  const at::NoGradGuard no_grad;
  const auto dtype = values.scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)
    throw UsageError(fmt::format("quantize_nf4 takes float32, bfloat16 or float16; got {}", toString(dtype)));
  Nf4Weight weight{.packed = {}, .absmax = {}, .sizes = values.sizes().vec(), .dtype = dtype};
  const at::Tensor blocks = in_blocks(values.to(at::kFloat), kNf4Block);
  weight.absmax = blocks.abs().amax(1);
  const at::Tensor factors = at::reciprocal(weight.absmax.clamp_min(1e-38)).unsqueeze(1);
  const at::Tensor bounds = midpoints(nf4_levels()).to(values.device());
  const at::Tensor levels =
      at::bucketize((blocks * factors).clamp(-1, 1), bounds, /*out_int32=*/true).to(at::kByte).view({-1, 2});
  const at::Tensor pairs = levels.select(1, 0).mul(16).add(levels.select(1, 1));
  weight.packed = pairs.narrow(0, 0, (values.numel() + 1) / 2).unsqueeze(1).clone();
  if (double_quant) quantize_scales(weight);
  return weight;
}

at::Tensor dequantize_nf4(const Nf4Weight& weight, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const at::Tensor packed = weight.packed.reshape(-1), scales = scales_of(weight);
  const at::Tensor levels = nf4_levels().to(packed.device());
  // Both levels of each byte at once.
  const at::Tensor pairs = at::stack({levels.repeat_interleave(16), levels.repeat({16})}, 1);
  std::int64_t count = 1;
  for (const auto size : weight.sizes) count *= size;
  const at::Tensor values = at::empty({count}, packed.options().dtype(dtype));
  for (std::int64_t begin = 0; begin < packed.numel(); begin += kBytesAtATime) {
    const auto bytes = std::min(kBytesAtATime, packed.numel() - begin);
    const at::Tensor both = pairs.index_select(0, packed.narrow(0, begin, bytes).to(at::kInt)).view(-1);
    const auto first = 2 * begin, length = std::min(2 * bytes, count - first);
    const at::Tensor blocks = in_blocks(both.narrow(0, 0, length), kNf4Block);
    blocks.mul_(scales.narrow(0, first / kNf4Block, blocks.size(0)).unsqueeze(1));
    values.narrow(0, first, length).copy_(blocks.view(-1).narrow(0, 0, length));
  }
  return values.view(weight.sizes);
}

}  // namespace lockstep::models
