#include "comm/cuda/rules.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "support/throws.hpp"

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

TEST(MadeWithin, ReturnsWhatWasMade) {
  EXPECT_EQ(*made_within(minutes(1), "late", [] { return std::make_unique<int>(3); }), 3);
}

TEST(MadeWithin, ThrowsWhatWasThrown) {
  EXPECT_THROWS(made_within(minutes(1), "late", []() -> int { throw CommunicationError("refused"); }),
                CommunicationError, "refused");
}

TEST(MadeWithin, GivesUpWhenTheLimitPasses) {
  const auto never = std::make_shared<std::promise<void>>();
  EXPECT_THROWS(made_within(milliseconds(20), "nobody came", [never] { never->get_future().wait(); }),
                TimeoutError, "nobody came");
  never->set_value();
}

}  // namespace
}  // namespace lockstep::comm
