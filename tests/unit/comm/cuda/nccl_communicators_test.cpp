#include "comm/cuda/nccl_communicators.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

using Events = std::vector<std::string>;

class NamedBackend final : public c10d::Backend {
 public:
  NamedBackend(std::string name, Events& events, bool fails)
      : Backend(0, 2), name_(std::move(name)), events_(events), fails_(fails) {}
  void shutdown() override {
    events_.push_back("shut down " + name_);
    if (fails_) throw CommunicationError(name_ + " is broken");
  }
  void abort() override { events_.push_back("abort " + name_); }

 private:
  std::string name_;
  Events& events_;
  bool fails_;
};

class NcclCommunicatorsEnd : public ::testing::Test {
 protected:
  NcclCommunicators::Backend backend(const std::string& name, bool fails = false) {
    return c10::make_intrusive<NamedBackend>(name, events, fails);
  }
  void make(int meeting_that_fails = 0) {
    communicators.emplace(nullptr);
    communicators->set_end({"rank 0 of 2", [this] { events.push_back("synchronize"); },
                            [this, meeting_that_fails] {
                              events.push_back("meet");
                              if (++meetings == meeting_that_fails) throw TimeoutError("rank 1 did not come");
                            }});
    communicators->add(backend("world"));
  }

  Events events;
  int meetings = 0;
  std::optional<NcclCommunicators> communicators;
};

TEST_F(NcclCommunicatorsEnd, BeginsWhenAllRanksHaveArrivedWithTheNewestFirst) {
  make();
  communicators->add(backend("part 1"));
  communicators->add(backend("part 2"));
  communicators.reset();
  EXPECT_EQ(events, (Events{"synchronize", "meet", "shut down part 2", "shut down part 1", "shut down world",
                            "meet"}));
}

TEST_F(NcclCommunicatorsEnd, IsAnAbortWhereARankDoesNotArrive) {
  make(1);
  communicators->add(backend("part"));
  ::testing::internal::CaptureStderr();
  communicators.reset();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning: rank 0 of 2: NCCL communicators did not shut down cleanly: rank 1 did "
            "not come\n");
  EXPECT_EQ(events, (Events{"synchronize", "meet", "abort part", "abort world"}));
}

TEST_F(NcclCommunicatorsEnd, AbortsWhatCannotBeShutDown) {
  make();
  communicators->add(backend("part 1", /*fails=*/true));
  communicators->add(backend("part 2"));
  ::testing::internal::CaptureStderr();
  communicators.reset();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("part 1 is broken"), std::string::npos);
  EXPECT_EQ(events, (Events{"synchronize", "meet", "shut down part 2", "shut down part 1", "abort part 1",
                            "abort world"}));
}

TEST_F(NcclCommunicatorsEnd, AbortsNothingThatIsShutDown) {
  make(2);
  ::testing::internal::CaptureStderr();
  communicators.reset();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("rank 1 did not come"), std::string::npos);
  EXPECT_EQ(events, (Events{"synchronize", "meet", "shut down world", "meet"}));
}

TEST_F(NcclCommunicatorsEnd, WaitsForNobodyWhileAnExceptionEndsTheRank) {
  try {
    make();
    const std::shared_ptr<void> end(nullptr, [this](void*) { communicators.reset(); });
    throw Error("a rank fails");
  } catch (const Error&) {
  }
  EXPECT_EQ(events, (Events{"abort world"}));
}

TEST_F(NcclCommunicatorsEnd, LeavesOutWhatWasAborted) {
  make();
  const auto part = backend("part");
  communicators->add(part);
  communicators->abort(part);
  communicators->abort(part);
  communicators.reset();
  EXPECT_EQ(events, (Events{"abort part", "synchronize", "meet", "shut down world", "meet"}));
}

}  // namespace
}  // namespace lockstep::comm
