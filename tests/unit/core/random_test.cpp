#include "core/random.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RandomBits, AreThoseOfSplitMix64) {
  RandomBits bits(1234567);
  for (const std::uint64_t expected : {6457827717110365317U, 3203168211198807973U, 9817491932198370423U})
    EXPECT_EQ(bits(), expected);
}

TEST(MixBits, IsTheFirstNumberOfASequence) {
  EXPECT_EQ(mix_bits(1234567), 6457827717110365317U);
  EXPECT_EQ(mix_bits(1234567, 7), RandomBits(6457827717110365317U ^ 7U)());
  EXPECT_NE(mix_bits(7, 1234567), mix_bits(1234567, 7));
}

}  // namespace
}  // namespace lockstep
