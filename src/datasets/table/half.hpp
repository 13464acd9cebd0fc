#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lockstep::table {

/// The value of an IEEE 754 half-precision number, given by its bits.
inline float half_to_float(std::uint16_t bits) noexcept {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

/// The nearest half-precision number, ties to even; infinity beyond 65519.
inline std::uint16_t float_to_half(double value) noexcept {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(value)) return 0x7E00;
  if (size >= 65520.0) return sign | 0x7C00;
  if (size < 0x1p-14) return sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  int exponent = 0;
  const double part = std::frexp(size, &exponent);
  // A carry out of the fraction raises the exponent, as it should.
  const auto fraction = static_cast<std::uint16_t>(std::nearbyint(std::ldexp(part, 11)) - 1024);
  return sign | static_cast<std::uint16_t>(((exponent + 14) << 10) + fraction);
}

}  // namespace lockstep::table
