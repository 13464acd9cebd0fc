#include "core/runtime/call_within.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "support/throws.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

TEST(CallWithin, ReturnsTheResult) {
  EXPECT_EQ(*call_within(minutes(1), "late", [] { return std::make_unique<int>(3); }), 3);
}

TEST(CallWithin, ThrowsWhatWasThrown) {
  EXPECT_THROWS(call_within(minutes(1), "late", []() -> int { throw CommunicationError("refused"); }),
                CommunicationError, "refused");
}

TEST(CallWithin, GivesUpWhenTheLimitPasses) {
  const auto never = std::make_shared<std::promise<void>>();
  EXPECT_THROWS(call_within(milliseconds(20), "nobody came", [never] { never->get_future().wait(); }),
                TimeoutError, "nobody came");
  never->set_value();
}

}  // namespace
}  // namespace lockstep
