#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::table {

/// `numpy.random.default_rng(seed)`: the same numbers, bit for bit. Sources: O'Neill, "PCG: A Family of
/// Simple Fast Space-Efficient Statistically Good Algorithms for Random Number Generation", 2014 (the
/// generator is PCG64, XSL-RR); O'Neill, "Developing a seed_seq Alternative", 2015 (how the seed is
/// expanded); NumPy's documentation, "Parallel random number generation" and "Bit generators". *Local*; one
/// thread at a time.
class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint64_t seed);

  std::uint64_t next64();
  /// Each 64 bits give two of these, the low half first.
  std::uint32_t next32();
  /// `random()`: in [0, 1), a multiple of 2^-53.
  double uniform();
  /// From 0 to `most`, by masks and rejection, as shuffle draws.
  std::uint64_t interval(std::uint64_t most);
  /// From 0 to `most`, by Lemire's method, as integers() and choice() draw.
  std::uint64_t bounded(std::uint64_t most);

  /// `shuffle(values)`.
  void shuffle(std::span<std::int64_t> values);
  /// `permutation(count)`.
  std::vector<std::int64_t> permutation(std::int64_t count);
  /// `choice(count, size=1000, p=probabilities)` for `count` probabilities that sum to 1.
  std::vector<std::size_t> choices(std::span<const double> probabilities, std::size_t size);
  /// `choice(values, size=size, replace=False)`.
  std::vector<std::int64_t> sample(std::span<const std::int64_t> values, std::int64_t size);

 private:
  __extension__ using Wide = unsigned __int128;
  void step();

  Wide state_ = 0;
  Wide increment_ = 0;
  std::optional<std::uint32_t> half_;
};

}  // namespace lockstep::table
