#include "comm/cuda/device_sharing.hpp"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(SharedDevice, IsNoneWhereEachRankHasItsOwn) {
  EXPECT_EQ(shared_device_text({{0, "a"}, {1, "b"}, {2, "c"}}), "");
  EXPECT_EQ(shared_device_text({}), "");
}

TEST(SharedDevice, IsNamedWithItsRanks) {
  const std::string text = shared_device_text({{0, "b"}, {1, "a"}, {3, "b"}, {5, "b"}});
  EXPECT_EQ(text.substr(0, text.find(',', text.find('('))), "ranks 0, 3, 5 use the same GPU (b)");
}

}  // namespace
}  // namespace lockstep::comm
