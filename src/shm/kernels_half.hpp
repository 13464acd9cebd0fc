// Conversion between half precision and float, in loops that the compiler vectorizes. Rounds to nearest, ties
// to even; NaN is preserved; subnormal numbers are kept. (The instructions of AVX512_BF16 flush them to
// zero.) Part of kernels_loops.hpp, which explains the anonymous namespace.

#include <cstddef>
#include <cstdint>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace lockstep::shm {
namespace {

inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

struct BFloat16 {
  static void widen(float* to, const std::uint16_t* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = float_of(static_cast<std::uint32_t>(from[i]) << 16);
  }

  static void narrow(std::uint16_t* to, const float* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = bits_of(from[i]);
      const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
      const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;
      to[i] = static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet_nan : rounded);
    }
  }
};

struct Float16 {
  static float wide(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t magnitude = (half & 0x7FFFU) << 13;
    // Uses 2^-14 as the implicit bit of a number with a zero exponent: after the subtraction its fraction
    // remains.
    const std::uint32_t smallest = bits_of(float_of(magnitude + (113U << 23)) - float_of(113U << 23));
    const std::uint32_t exponent = magnitude & (0x1FU << 23);
    const std::uint32_t normal = magnitude + (112U << 23);
    const std::uint32_t special = magnitude + (224U << 23);
    const std::uint32_t finite = exponent == 0 ? smallest : normal;
    return float_of(sign | (exponent == (0x1FU << 23) ? special : finite));
  }

  static std::uint16_t narrowed(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    const std::uint32_t special = magnitude > 0x7F800000U ? 0x7E00U | ((magnitude >> 13) & 0x3FFU) : 0x7C00U;
    // Adding 0.5 makes the FPU round a subnormal result at the right bit.
    const std::uint32_t small = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
    const std::uint32_t normal = (magnitude + 0xC8000FFFU + ((magnitude >> 13) & 1U)) >> 13;
    const std::uint32_t finite = magnitude < (113U << 23) ? small : normal;
    return static_cast<std::uint16_t>(sign | (magnitude >= 0x47800000U ? special : finite));
  }

  static void widen(float* to, const std::uint16_t* from, std::size_t count) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#endif
    for (; i < count; ++i) to[i] = wide(from[i]);
  }

  static void narrow(std::uint16_t* to, const float* from, std::size_t count) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
    }
#endif
    for (; i < count; ++i) to[i] = narrowed(from[i]);
  }
};

}  // namespace
}  // namespace lockstep::shm
