#include "datasets/table/numpy_random.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <unordered_set>

namespace lockstep::table {
namespace {

constexpr std::size_t kPool = 4;
using Pool = std::array<std::uint32_t, kPool>;

constexpr std::uint32_t kMost32 = std::numeric_limits<std::uint32_t>::max();
/// Multiplier of the linear congruential step, upper and lower half.
constexpr std::uint64_t kMultiplierHigh = 0x2360ED051FC65DA4ULL;
constexpr std::uint64_t kMultiplierLow = 0x4385DF649FCCF645ULL;
/// NumPy samples from populations above this size by a partial shuffle.
constexpr std::int64_t kLargePopulation = 10000;
constexpr std::int64_t kCutoff = 50;

std::uint32_t folded(std::uint32_t value) { return value ^ value >> 16; }

/// A hash whose constant changes with each use.
struct Hash {
  std::uint32_t constant;
  std::uint32_t multiplier;
  std::uint32_t operator()(std::uint32_t value) {
    value ^= constant;
    constant *= multiplier;
    return folded(value * constant);
  }
};

Pool spread(std::uint64_t seed) {
  Hash hash{0x43B0D7E5U, 0x931E8875U};
  Pool pool{hash(static_cast<std::uint32_t>(seed)), hash(static_cast<std::uint32_t>(seed >> 32)), hash(0),
            hash(0)};
  for (std::size_t from = 0; from < kPool; ++from) {
    for (std::size_t to = 0; to < kPool; ++to) {
      if (from != to) pool[to] = folded(0xCA01F9DDU * pool[to] - 0x4973F715U * hash(pool[from]));
    }
  }
  return pool;
}

/// Four 64-bit numbers that seed the generator.
std::array<std::uint64_t, 4> words_of(const Pool& pool) {
  Hash hash{0x8B51F9DDU, 0x58F38DEDU};
  std::array<std::uint64_t, 4> words{};
  for (std::size_t index = 0; index < 2 * words.size(); ++index) {
    words[index / 2] |= std::uint64_t{hash(pool[index % kPool])} << (index % 2 * 32);
  }
  return words;
}

}  // namespace

NumpyRandom::NumpyRandom(std::uint64_t seed) {
  const auto words = words_of(spread(seed));
  increment_ = ((Wide{words[2]} << 64 | words[3]) << 1) | 1;
  step();
  state_ += Wide{words[0]} << 64 | words[1];
  step();
}

void NumpyRandom::step() { state_ = state_ * (Wide{kMultiplierHigh} << 64 | kMultiplierLow) + increment_; }

std::uint64_t NumpyRandom::next64() {
  step();
  const auto folded_state = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
  return std::rotr(folded_state, static_cast<int>(state_ >> 122));
}

std::uint32_t NumpyRandom::next32() {
  if (half_) {
    const auto value = *half_;
    half_.reset();
    return value;
  }
  const auto both = next64();
  half_ = static_cast<std::uint32_t>(both >> 32);
  return static_cast<std::uint32_t>(both);
}

double NumpyRandom::uniform() { return static_cast<double>(next64() >> 11) * 0x1p-53; }

std::uint64_t NumpyRandom::interval(std::uint64_t most) {
  if (most == 0) return 0;
  const auto mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(most);
  for (;;) {
    const auto value = (most <= kMost32 ? next32() : next64()) & mask;
    if (value <= most) return value;
  }
}

std::uint64_t NumpyRandom::bounded(std::uint64_t most) {
  if (most == 0) return 0;
  if (most == kMost32) return next32();
  const bool narrow = most < kMost32;
  const int bits = narrow ? 32 : 64;
  const Wide count = Wide{most} + 1;
  const Wide low = (Wide{1} << bits) - 1;
  const Wide threshold = (low - most) % count;
  for (;;) {
    const Wide product = Wide{narrow ? next32() : next64()} * count;
    if ((product & low) >= threshold) return static_cast<std::uint64_t>(product >> bits);
  }
}

void NumpyRandom::shuffle(std::span<std::int64_t> values) {
  for (auto index = values.size(); index-- > 1;) std::swap(values[index], values[interval(index)]);
}

std::vector<std::int64_t> NumpyRandom::permutation(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  shuffle(values);
  return values;
}

std::vector<std::size_t> NumpyRandom::choices(std::span<const double> probabilities, std::size_t size) {
  std::vector<double> sums(probabilities.size());
  std::partial_sum(probabilities.begin(), probabilities.end(), sums.begin());
  for (auto& sum : sums) sum /= sums.back();
  std::vector<std::size_t> chosen;
  chosen.reserve(size);
  for (std::size_t index = 0; index < size; ++index) {
    const auto found = std::upper_bound(sums.begin(), sums.end(), uniform());
    chosen.push_back(static_cast<std::size_t>(found - sums.begin()));
  }
  return chosen;
}

std::vector<std::int64_t> NumpyRandom::sample(std::span<const std::int64_t> values, std::int64_t size) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::int64_t> indices;
  if (count > kLargePopulation && size > count / kCutoff) {
    indices.resize(values.size());
    std::iota(indices.begin(), indices.end(), 0);
    for (auto index = count - 1; index >= std::max<std::int64_t>(count - size, 1); --index) {
      std::swap(indices[static_cast<std::size_t>(index)],
                indices[bounded(static_cast<std::uint64_t>(index))]);
    }
    indices.erase(indices.begin(), indices.end() - size);
  } else {
    // Floyd's algorithm: each new index, or, if it was drawn before, the last possible one.
    std::unordered_set<std::int64_t> drawn;
    for (auto last = count - size; last < count; ++last) {
      const auto index = static_cast<std::int64_t>(bounded(static_cast<std::uint64_t>(last)));
      indices.push_back(drawn.insert(index).second ? index : last);
      drawn.insert(indices.back());
    }
    for (auto index = size - 1; index > 0; --index) {
      std::swap(indices[static_cast<std::size_t>(index)],
                indices[bounded(static_cast<std::uint64_t>(index))]);
    }
  }
  for (auto& index : indices) index = values[static_cast<std::size_t>(index)];
  return indices;
}

}  // namespace lockstep::table
