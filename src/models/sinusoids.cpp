#include "models/sinusoids.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace lockstep::models {

Sinusoids Sinusoids::of_m2m100(std::int64_t width, std::int64_t padding) {
  Sinusoids sines;
  sines.kind_ = Kind::m2m100;
  sines.width_ = width;
  sines.padding_ = padding;
  return sines;
}

Sinusoids Sinusoids::of_marian(std::int64_t width) {
  Sinusoids sines;
  sines.width_ = width;
  return sines;
}

/// The frequencies of the two families differ, and so does the precision in which Python computes them.
at::Tensor Sinusoids::table(std::int64_t count) const {
  if (kind_ == Kind::m2m100) {
    const std::int64_t half = width_ / 2;
    const double step = std::log(10000.0) / static_cast<double>(std::max<std::int64_t>(half - 1, 1));
    const at::Tensor rates = at::exp(at::arange(half, at::kLong).to(at::kFloat) * -step);
    const at::Tensor angles = at::arange(count, at::kLong).to(at::kFloat).unsqueeze(1) * rates.unsqueeze(0);
    at::Tensor values = at::cat({angles.sin(), angles.cos()}, 1);
    if (width_ % 2 == 1) values = at::cat({values, at::zeros({count, 1})}, 1);
    if (padding_ < count) values[padding_].zero_();
    return values;
  }
  const at::Tensor even = at::arange(0, width_, 2, at::kDouble);
  const at::Tensor angles = at::arange(count, at::kDouble).unsqueeze(1) /
                            at::pow(10000.0, even / static_cast<double>(width_)).unsqueeze(0);
  return at::cat({angles.sin(), angles.narrow(1, 0, width_ / 2).cos()}, 1).to(at::kFloat);
}

at::Tensor Sinusoids::operator()(const at::Tensor& positions, std::int64_t count, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  if (!table_.defined() || table_.size(0) < count) {
    const std::int64_t before = table_.defined() ? table_.size(0) : 0;
    table_ = table(std::max(count, 2 * before));
  }
  if (table_.device() != positions.device()) table_ = table_.to(positions.device());
  auto sizes = positions.sizes().vec();
  sizes.push_back(width_);
  return table_.index_select(0, positions.flatten()).view(sizes).to(dtype);
}

}  // namespace lockstep::models
