// What becomes of an exception inside an operation.

#include "comm/errors.hpp"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <new>

#include "support/throws.hpp"

namespace lockstep::comm {
namespace {

using lockstep::testing::message_of;

template <class Thrown>
auto rethrown(Thrown thrown) {
  return [=] {
    translated([&] { throw thrown; }, [] { return std::string("rank 1 of 2: all_reduce #3 failed"); });
  };
}

/// A rank without memory is no lost peer.
TEST(ErrorsOfOperations, ALackOfMemoryStaysOne) {
  EXPECT_THROW(rethrown(std::bad_alloc())(), std::bad_alloc);
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  EXPECT_THROW(rethrown(c10::OutOfMemoryError(here, "of the GPU"))(), c10::OutOfMemoryError);
}

/// Which words somebody else chose says nothing of what happened.
TEST(ErrorsOfOperations, AreNotToldByTheirWords) {
  const auto expect_no_timeout = [](const auto& action) {
    try {
      action();
    } catch (const TimeoutError& error) {
      FAIL() << error.what();
    } catch (const CommunicationError&) {
    }
  };
  expect_no_timeout(rethrown(std::runtime_error("Timeout is not an option of this dtype")));
  expect_no_timeout(rethrown(std::runtime_error("it timed out")));
}

TEST(ErrorsOfOperations, KnowATimeoutByItsType) {
  EXPECT_EQ(message_of<TimeoutError>(rethrown(LibraryTimeout("recv"))),
            "rank 1 of 2: all_reduce #3 failed: recv");
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  EXPECT_THROW(rethrown(c10::DistStoreError(here, "key"))(), TimeoutError);
  EXPECT_THROW(rethrown(c10::DistNetworkError(here, "reset by peer"))(), ConnectionLost);
}

TEST(ErrorsOfOperations, OfOursPassUnchanged) {
  EXPECT_EQ(message_of<UsageError>(rethrown(UsageError("a wrong root"))), "a wrong root");
}

}  // namespace
}  // namespace lockstep::comm
