#pragma once

#include <cstdint>

namespace lockstep {

/// The SplitMix64 sequence of a seed; usable with the standard library's distributions. Data sets and
/// augmentations draw from it: the sequence, and the two functions below, must stay as they are, because a
/// training that resumes goes on with their numbers.
class RandomBits {
 public:
  using result_type = std::uint64_t;
  explicit RandomBits(std::uint64_t seed) noexcept : state_(seed) {}

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()() noexcept {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t value = state_;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
  }

  /// In [0, 1).
  double uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  double uniform(double low, double high) noexcept { return low + uniform() * (high - low); }
  /// An integer from 0 to `count` - 1; `count` is far below 2^32, so that the bias is negligible.
  std::int64_t below(std::int64_t count) noexcept {
    return static_cast<std::int64_t>((((*this)() >> 32) * static_cast<std::uint64_t>(count)) >> 32);
  }

 private:
  std::uint64_t state_;
};

/// 64 bits that depend on every bit of the value; different ones for different values.
inline std::uint64_t mix_bits(std::uint64_t value) noexcept { return RandomBits(value)(); }

/// The same of two values, in this order: a seed for the part of a sequence that `value` names.
inline std::uint64_t mix_bits(std::uint64_t seed, std::uint64_t value) noexcept {
  return mix_bits(mix_bits(seed) ^ value);
}

}  // namespace lockstep
