#include "checkpoint/element.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

namespace lockstep::launch {
namespace {

template <class Number>
double plain(const char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return static_cast<double>(number);
}

/// The upper half of a float32.
double brain_float(const char* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

/// IEEE 754 binary16: a sign, five bits of exponent, ten of fraction.
double half_float(const char* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  const int exponent = (bits >> 10U) & 31;
  const int fraction = bits & 1023;
  double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits >> 15U) != 0 ? -size : size;
}

struct Kind {
  std::string_view dtype;
  ElementReader reader;
};

constexpr std::array kKinds = {
    Kind{"F64", plain<double>},        Kind{"F32", plain<float>},         Kind{"F16", half_float},
    Kind{"BF16", brain_float},         Kind{"I64", plain<std::int64_t>},  Kind{"I32", plain<std::int32_t>},
    Kind{"I16", plain<std::int16_t>},  Kind{"I8", plain<std::int8_t>},    Kind{"U64", plain<std::uint64_t>},
    Kind{"U32", plain<std::uint32_t>}, Kind{"U16", plain<std::uint16_t>}, Kind{"U8", plain<std::uint8_t>},
    Kind{"BOOL", plain<std::uint8_t>}};

}  // namespace

std::optional<ElementReader> element_reader(const std::string& dtype) {
  for (const auto& kind : kKinds) {
    if (kind.dtype == dtype) return kind.reader;
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
