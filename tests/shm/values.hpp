#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "shm/types.hpp"

namespace lockstep::shm::testing {

/// The nearest half-precision number, found by looking: an independent check of the rounding in the kernels.
/// `wide` gives the value of a bit pattern; patterns of positive finite numbers ascend up to `largest`.
template <class Wide>
std::uint16_t nearest(double value, Wide&& wide, std::uint16_t largest) {
  const double magnitude = std::fabs(value);
  std::uint16_t low = 0, high = largest;
  while (low < high) {
    const auto middle = static_cast<std::uint16_t>(low + (high - low + 1) / 2);
    if (wide(middle) <= magnitude) {
      low = middle;
    } else {
      high = static_cast<std::uint16_t>(middle - 1);
    }
  }
  // Infinity stands where the next number would.
  const auto next = static_cast<std::uint16_t>(low + 1);
  const double above =
      low == largest ? 2 * wide(low) - wide(static_cast<std::uint16_t>(low - 1)) : wide(next);
  const double down = magnitude - wide(low), up = above - magnitude;
  const bool go_up = up < down || (up == down && low % 2 == 1);
  return static_cast<std::uint16_t>((go_up ? next : low) | (std::signbit(value) ? 0x8000 : 0));
}

inline double wide_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

inline double wide_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

/// Elements of any dtype, written and read as doubles.
class Values {
 public:
  Values(Dtype dtype, std::size_t count) : dtype_(dtype), bytes_(count * size_of(dtype) + 1) {}

  void* data() { return bytes_.data(); }
  std::size_t count() const { return (bytes_.size() - 1) / size_of(dtype_); }

  void set(std::size_t i, double value) {
    switch (dtype_) {
      case Dtype::i8:
        return put<std::int8_t>(i, value);
      case Dtype::i16:
        return put<std::int16_t>(i, value);
      case Dtype::i32:
        return put<std::int32_t>(i, value);
      case Dtype::i64:
        return put<std::int64_t>(i, value);
      case Dtype::f16:
        return put<std::uint16_t>(i, nearest(value, wide_f16, 0x7BFF));
      case Dtype::bf16:
        return put<std::uint16_t>(i, nearest(value, wide_bf16, 0x7F7F));
      case Dtype::f32:
        return put<float>(i, value);
      case Dtype::f64:
        return put<double>(i, value);
      default:
        return put<std::uint8_t>(i, value);
    }
  }

  bool operator==(const Values& other) const { return bytes_ == other.bytes_; }

 private:
  template <class T>
  void put(std::size_t i, double value) {
    const T converted = static_cast<T>(value);
    std::memcpy(bytes_.data() + i * sizeof(T), &converted, sizeof(T));
  }

  Dtype dtype_;
  std::vector<unsigned char> bytes_;  // One more than needed: it must stay 0.
};

inline bool is_float(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::f64;
}

inline bool makes_sense(Dtype dtype, Reduction reduction) {
  const bool bitwise = reduction >= Reduction::bit_and;
  if (dtype == Dtype::bytes) return false;
  return is_float(dtype) ? !bitwise : reduction != Reduction::avg;
}

/// Calls `check(dtype, reduction)` for all that make sense together.
template <class Check>
void for_every_reduction(const Check& check) {
  for (int d = 0; d < kDtypes; ++d) {
    for (int r = 0; r < kReductions; ++r) {
      const auto dtype = static_cast<Dtype>(d);
      const auto reduction = static_cast<Reduction>(r);
      if (makes_sense(dtype, reduction)) check(dtype, reduction);
    }
  }
}

/// What rank `rank` contributes: small numbers, so that sums and products of five ranks are exact in every
/// dtype.
inline double contribution(Dtype dtype, Reduction reduction, std::size_t i, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  if (dtype == Dtype::boolean) return static_cast<double>((i / (r + 1)) % 2);
  if (reduction == Reduction::product) return static_cast<double>(1 + (i + r) % 2);
  return static_cast<double>((i * 7 + r * 3) % 5 + 1);
}

inline double combined(Dtype dtype, Reduction reduction, double a, double b) {
  const bool boolean = dtype == Dtype::boolean;
  const auto x = static_cast<std::int64_t>(a), y = static_cast<std::int64_t>(b);
  switch (reduction) {
    case Reduction::product:
      return a * b;
    case Reduction::min:
      return std::fmin(a, b);
    case Reduction::max:
      return std::fmax(a, b);
    case Reduction::bit_and:
      return static_cast<double>(x & y);
    case Reduction::bit_or:
      return static_cast<double>(x | y);
    case Reduction::bit_xor:
      return static_cast<double>(x ^ y);
    default:
      return boolean ? std::fmax(a, b) : a + b;
  }
}

/// The serial result for element `i`.
inline double expected(Dtype dtype, Reduction reduction, std::size_t i, int ranks) {
  double value = contribution(dtype, reduction, i, 0);
  for (int r = 1; r < ranks; ++r)
    value = combined(dtype, reduction, value, contribution(dtype, reduction, i, r));
  if (reduction != Reduction::avg) return value;
  return dtype == Dtype::f64 ? value / ranks : static_cast<float>(value) / static_cast<float>(ranks);
}

template <class Make>
Values make_values(Dtype dtype, std::size_t count, Make&& make) {
  Values values(dtype, count);
  for (std::size_t i = 0; i < count; ++i) values.set(i, make(i));
  return values;
}

/// What a rank brings to a reduction, and what comes of all ranks'.
inline Values input_of(Dtype dtype, Reduction reduction, std::size_t count, int rank, std::size_t shift = 0) {
  return make_values(dtype, count,
                     [&](std::size_t i) { return contribution(dtype, reduction, i + shift, rank); });
}
inline Values result_of(Dtype dtype, Reduction reduction, std::size_t count, int ranks,
                        std::size_t shift = 0) {
  return make_values(dtype, count,
                     [&](std::size_t i) { return expected(dtype, reduction, i + shift, ranks); });
}

}  // namespace lockstep::shm::testing
