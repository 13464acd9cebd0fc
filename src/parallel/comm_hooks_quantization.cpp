#include "lockstep/parallel/comm_hooks.hpp"

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>

#include <limits>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

constexpr double kSteps = 255;  // Bytes from 0 to 255.

/// One row per channel. The end is padded with zeros, by a whole channel if nothing is missing, as in
/// PyTorch.
at::Tensor rows_of(const at::Tensor& buffer, std::int64_t channel) {
  if (channel == 0) return buffer.view({1, -1});
  return at::constant_pad_nd(buffer, {0, channel - buffer.numel() % channel}, 0).view({-1, channel});
}

/// The scale and the zero point of each row: [2, rows, 1], in float, computed as in PyTorch's MinMaxObserver.
at::Tensor scales_of(const at::Tensor& rows) {
  const at::Tensor wide = rows.to(at::kFloat);
  const at::Tensor low = at::amin(wide, {1}, /*keepdim=*/true).clamp_max(0);
  const at::Tensor high = at::amax(wide, {1}, /*keepdim=*/true).clamp_min(0);
  const at::Tensor scale = high.sub(low).div(kSteps).clamp_min(std::numeric_limits<float>::epsilon());
  const at::Tensor zero = low.div(scale).round().neg().clamp(0, kSteps);
  return at::stack({scale, zero});
}

at::Tensor quantized(const at::Tensor& rows, const at::Tensor& scales) {
  return rows.div(scales[0]).round_().add_(scales[1]).clamp_(0, kSteps).to(at::kByte);
}

at::Tensor restored(const at::Tensor& bytes, const at::Tensor& scales) {
  return bytes.to(at::kFloat).sub_(scales[1]).mul_(scales[0]);
}

std::vector<at::Tensor> one_for_each_rank(const at::Tensor& tensor, int ranks) {
  std::vector<at::Tensor> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(at::empty_like(tensor));
  return result;
}

at::Tensor mean_of(const std::vector<at::Tensor>& bytes, const std::vector<at::Tensor>& scales) {
  at::Tensor sum = at::zeros_like(bytes.front(), at::kFloat);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) sum.add_(restored(bytes[rank], scales[rank]));
  return sum.div_(static_cast<double>(bytes.size()));
}

}  // namespace

QuantizationHook::QuantizationHook(const QuantizationOptions& options) : options_(options) {
  if (options.channel >= 0) return;
  throw UsageError("QuantizationHook: channel must be 0 or the number of gradients that share a scale");
}

std::string QuantizationHook::name() const {
  return fmt::format("quantization: channel {}", options_.channel);
}

FinishBucket QuantizationHook::start(const GradientBucket& bucket, const ProcessGroup& group) {
  const at::Tensor rows = rows_of(bucket.buffer, options_.channel);
  const at::Tensor scales = scales_of(rows);
  const at::Tensor bytes = quantized(rows, scales);
  const auto all_scales = one_for_each_rank(scales, group.size());
  const auto all_bytes = one_for_each_rank(bytes, group.size());
  Work scales_sent = group.all_gather_async(all_scales, scales);
  Work bytes_sent = group.all_gather_async(all_bytes, bytes);
  return [=, buffer = bucket.buffer]() mutable {
    scales_sent.wait();
    bytes_sent.wait();
    return buffer.copy_(mean_of(all_bytes, all_scales).view(-1).narrow(0, 0, buffer.numel()));
  };
}

}  // namespace lockstep
