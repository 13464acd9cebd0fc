#include "comm/cuda/device_sharing.hpp"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(PeerAccess, NamesThePairsThatReachEachOther) {
  EXPECT_EQ(peer_access_text(4, [](int, int) { return true; }), "all");
  EXPECT_EQ(peer_access_text(4, [](int, int) { return false; }), "none");
  EXPECT_EQ(peer_access_text(4, [](int index, int peer) { return index / 2 == peer / 2; }), "0-1, 2-3");
}

TEST(PeerAccess, IsOfBothDirections) {
  EXPECT_EQ(peer_access_text(3, [](int index, int peer) { return index < peer || peer == 1; }), "1-2");
}

TEST(PeerAccess, NeedsTwoDevices) {
  EXPECT_EQ(peer_access_text(0, [](int, int) { return true; }), "");
  EXPECT_EQ(peer_access_text(1, [](int, int) { return true; }), "");
}

}  // namespace
}  // namespace lockstep::comm
