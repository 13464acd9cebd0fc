#include "shm/kernels.hpp"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/core/error.hpp"
#include "shm/values.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;

constexpr std::size_t kCount = 2500;  // Several blocks and an odd rest.

Reducer reducer_of(const Kernels& set, Dtype dtype, Reduction reduction) {
  return set.reducers[static_cast<int>(dtype)][static_cast<int>(reduction)];
}

template <class Check>
void for_every_reducer(const Check& check) {
  for (const Kernels* set : usable_kernels()) {
    for (int d = 0; d < kDtypes; ++d) {
      for (int r = 0; r < kReductions; ++r) {
        const auto dtype = static_cast<Dtype>(d);
        const auto reduction = static_cast<Reduction>(r);
        SCOPED_TRACE(std::string(set->name) + " " + name_of(dtype) + " " + name_of(reduction));
        check(dtype, reduction, reducer_of(*set, dtype, reduction));
      }
    }
  }
}

/// The last source is the first destination, as in a group's own slice.
void expect_serial_result(Dtype dtype, Reduction reduction, Reducer reducer, int ranks) {
  std::vector<Values> inputs;
  for (int r = 0; r < ranks; ++r) {
    inputs.push_back(
        make_values(dtype, kCount, [&](std::size_t i) { return contribution(dtype, reduction, i, r); }));
  }
  std::vector<const void*> sources;
  for (auto& input : inputs) sources.push_back(input.data());
  Values second(dtype, kCount);
  void* const destinations[] = {inputs.back().data(), second.data()};
  reducer(sources.data(), ranks, destinations, 2, kCount);
  const Values right =
      make_values(dtype, kCount, [&](std::size_t i) { return expected(dtype, reduction, i, ranks); });
  EXPECT_TRUE(inputs.back() == right);
  EXPECT_TRUE(second == right);
}

TEST(Kernels, GiveTheSerialResult) {
  for_every_reducer([](Dtype dtype, Reduction reduction, Reducer reducer) {
    ASSERT_EQ(reducer != nullptr, makes_sense(dtype, reduction));
    if (reducer == nullptr) return;
    for (int ranks = 1; ranks <= 5; ++ranks) expect_serial_result(dtype, reduction, reducer, ranks);
  });
}

TEST(Kernels, WrapIntegers) {
  const std::int32_t large = 2'000'000'000;
  const void* const sources[] = {&large, &large};
  std::int32_t sum = 0;
  void* const destination = &sum;
  reducer_for(Dtype::i32, Reduction::sum)(sources, 2, &destination, 1, 1);
  EXPECT_EQ(sum, -294'967'296);
}

TEST(Kernels, RefuseWhatMakesNoSense) {
  EXPECT_THROW(reducer_for(Dtype::f32, Reduction::bit_and), UsageError);
  EXPECT_THROW(reducer_for(Dtype::i32, Reduction::avg), UsageError);
  EXPECT_THROW(reducer_for(Dtype::bytes, Reduction::sum), UsageError);
}

TEST(Kernels, KeepNaNsInMinimaAndMaxima) {
  for_every_reducer([](Dtype dtype, Reduction reduction, Reducer reducer) {
    if (dtype != Dtype::f32 || (reduction != Reduction::min && reduction != Reduction::max)) return;
    const float nan = std::nanf("");
    const float one[] = {1, nan, 1}, two[] = {nan, 2, 3};
    float result[3];
    const void* const sources[] = {one, two};
    void* const destination = result;
    reducer(sources, 2, &destination, 1, 3);
    EXPECT_TRUE(std::isnan(result[0]));
    EXPECT_TRUE(std::isnan(result[1]));
    EXPECT_FALSE(std::isnan(result[2]));
  });
}

/// Every bit pattern comes back from float and to half precision; NaNs stay NaNs.
template <class Wide>
void expect_all_patterns_kept(Dtype dtype, Wide&& wide) {
  std::vector<std::uint16_t> all(65536), zeros(65536, 0x8000), result(65536);  // -0 + x is x.
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const void* const sources[] = {all.data(), zeros.data()};
  void* const destination = result.data();
  for (const Kernels* set : usable_kernels()) {
    reducer_of(*set, dtype, Reduction::sum)(sources, 2, &destination, 1, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool same = result[i] == all[i] || (std::isnan(wide(all[i])) && std::isnan(wide(result[i])));
      ASSERT_TRUE(same) << set->name << ' ' << i << " became " << result[i];
    }
  }
}

TEST(Kernels, KeepEveryHalf) {
  expect_all_patterns_kept(Dtype::f16, wide_f16);
  expect_all_patterns_kept(Dtype::bf16, wide_bf16);
}

/// Sums of random numbers, and of such that lie exactly between two.
template <class Wide>
void expect_rounding_to_nearest(Dtype dtype, Wide&& wide, std::uint16_t largest) {
  std::mt19937 random(1);
  std::vector<std::uint16_t> a(20000), b(20000), result(20000);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint16_t>(random() % largest);
    // Half of them of a like size.
    b[i] = static_cast<std::uint16_t>(i % 2 == 0 ? random() % largest
                                                 : std::min<unsigned>(largest, a[i] + random() % 3000));
  }
  const void* const sources[] = {a.data(), b.data()};
  void* const destination = result.data();
  for (const Kernels* set : usable_kernels()) {
    reducer_of(*set, dtype, Reduction::sum)(sources, 2, &destination, 1, a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const float sum = static_cast<float>(wide(a[i])) + static_cast<float>(wide(b[i]));
      if (std::isinf(sum)) continue;
      ASSERT_EQ(result[i], nearest(sum, wide, largest)) << set->name << ' ' << a[i] << ' ' << b[i];
    }
  }
}

TEST(Kernels, RoundToNearestEven) {
  expect_rounding_to_nearest(Dtype::f16, wide_f16, 0x7BFF);
  expect_rounding_to_nearest(Dtype::bf16, wide_bf16, 0x7F7F);
}

}  // namespace
}  // namespace lockstep::shm
