#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models {

/// Vectors of sines and cosines for positions (Vaswani et al., 2017): constants, which are neither trained
/// nor saved. They are computed in float32 and converted to the model's dtype, whatever that is. One thread
/// at a time.
class Sinusoids {
 public:
  Sinusoids() = default;
  /// The table of M2M100: row `padding` is zero.
  static Sinusoids of_m2m100(std::int64_t width, std::int64_t padding);
  /// The table of Marian.
  static Sinusoids of_marian(std::int64_t width);

  /// The vectors of `positions`, integers below `count` of any shape: [..., width] on their device.
  at::Tensor operator()(const at::Tensor& positions, std::int64_t count, at::ScalarType dtype);

 private:
  at::Tensor table(std::int64_t count) const;

  enum class Kind { m2m100, marian } kind_ = Kind::marian;
  std::int64_t width_ = 0, padding_ = 0;
  at::Tensor table_;
};

}  // namespace lockstep::models
