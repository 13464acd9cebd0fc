#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "shm/each_operation.hpp"
#include "support/throws.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

/// Far less than the timeout of the groups, 60 s, and far more than an abort takes on a busy machine.
constexpr std::chrono::seconds kBound{10};

enum class Moment {
  before,        // Before the first operation.
  in_operation,  // While all ranks run them one after the other.
  waiting,       // While all wait for one that does not come.
};

struct Outcome {
  std::string text;
  Clock::time_point ended;
};

/// The groups of all ranks, which another thread aborts.
class AbortedGroups {
 public:
  explicit AbortedGroups(int size) : groups_(static_cast<std::size_t>(size)), arrived_(size + 1) {}

  /// Each rank repeats the operation until it fails. One of them stays away if the others are to wait for it.
  std::vector<Outcome> run(const std::function<void(Rank&)>& operation, Moment moment) {
    std::vector<Outcome> outcomes(groups_.size());
    std::thread ranks([&] {
      run_group(static_cast<int>(groups_.size()), [&](Group& group) {
        const auto rank = static_cast<std::size_t>(group.step_sync().rank());
        groups_[rank] = &group;
        arrived_.arrive_and_wait();
        if (moment == Moment::before) arrived_.arrive_and_wait();
        Rank data(group);
        if (moment != Moment::waiting || rank != kKilled)
          outcomes[rank].text = repeat_until_aborted([&] { operation(data); });
        outcomes[rank].ended = Clock::now();
        arrived_.arrive_and_wait();
      });
    });
    arrived_.arrive_and_wait();
    if (moment != Moment::before) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    aborted_at_ = Clock::now();
    for (Group* const group : groups_) group->abort("rank 1 is lost");
    if (moment == Moment::before) arrived_.arrive_and_wait();
    arrived_.arrive_and_wait();
    ranks.join();
    return outcomes;
  }

  Clock::time_point aborted_at() const { return aborted_at_; }

 private:
  static std::string repeat_until_aborted(const std::function<void()>& operation) {
    for (;;) {
      try {
        operation();
      } catch (const Aborted& error) {
        return error.what();
      } catch (const std::exception& error) {
        return std::string("another error: ") + error.what();
      }
    }
  }

  std::vector<Group*> groups_;
  std::barrier<> arrived_;
  Clock::time_point aborted_at_;
};

using CaseSizeAndMoment = std::tuple<Case, int, Moment>;

std::string name_of_abort(const ::testing::TestParamInfo<CaseSizeAndMoment>& test) {
  constexpr const char* kNames[] = {"before", "in_operation", "waiting"};
  return std::get<Case>(test.param).name + ("_of_" + std::to_string(std::get<int>(test.param))) + "_" +
         kNames[static_cast<int>(std::get<Moment>(test.param))];
}

constexpr Moment kMoments[] = {Moment::before, Moment::in_operation, Moment::waiting};

class AbortedOperation : public ::testing::TestWithParam<CaseSizeAndMoment> {};
INSTANTIATE_TEST_SUITE_P(In, AbortedOperation,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Values(2, 3, 4),
                                            ::testing::ValuesIn(kMoments)),
                         name_of_abort);

TEST_P(AbortedOperation, EndsOnEveryRankWithTheReason) {
  const auto& [operation, size, moment] = GetParam();
  AbortedGroups groups(size);
  const auto outcomes = groups.run(operation.run, moment);
  for (int rank = 0; rank < size; ++rank) {
    if (moment == Moment::waiting && rank == kKilled) continue;
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(
        contains_all(outcome.text, {"rank " + std::to_string(rank) + " of " + std::to_string(size),
                                    "was aborted: rank 1 is lost. This group cannot be used any more"}));
    EXPECT_EQ(outcome.text.find("another error"), std::string::npos);
    EXPECT_LT(outcome.ended - groups.aborted_at(), kBound);
  }
}

/// The others are not aborted themselves, and must not wait until their timeout.
TEST(Abort, RankThatNeedsAnAbortedOneFailsWithItsReason) {
  std::barrier<> end(3);
  run_group(3, [&](Group& group) {
    const int rank = group.step_sync().rank();
    if (rank == kKilled) group.abort("its loader failed");
    if (rank == kKilled) {
      EXPECT_THROWS(barrier(group.step_sync()), Aborted, "barrier #1", "was aborted: its loader failed");
    } else {
      EXPECT_THROWS(barrier(group.step_sync()), PeerLost, "barrier #1",
                    "rank 1 gave up: was aborted: its loader");
    }
    end.arrive_and_wait();
  });
}

TEST(Abort, KeepsResultsAndTheFirstReason) {
  run_group(2, [](Group& group) {
    Rank rank(group);
    rank.data.assign(kCount, static_cast<float>(group.step_sync().rank()));
    all_reduce(rank.sync, *group.heap(), rank.data.data(), rank.whole(), Reduction::max);
    group.abort("first");
    group.abort("second");
    EXPECT_EQ(rank.data.front(), 1.0F);
    EXPECT_EQ(rank.data.back(), 1.0F);
    for (int i = 0; i < 2; ++i) EXPECT_THROWS(barrier(rank.sync), Aborted, "was aborted: first");
  });
}

/// What the process holds: its descriptors, threads and mappings of shared memory.
std::tuple<std::ptrdiff_t, std::ptrdiff_t, std::ptrdiff_t> count_resources() {
  const auto entries = [](const char* folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  };
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t shared = 0;
  for (std::string line; std::getline(maps, line);)
    shared += line.find("lockstep") != std::string::npos ? 1 : 0;
  return {entries("/proc/self/fd"), entries("/proc/self/task"), shared};
}

void abort_once() {
  AbortedGroups groups(2);
  for (const auto& outcome : groups.run(kCases[2].run, Moment::in_operation))
    EXPECT_TRUE(contains_all(outcome.text, {"was aborted"}));
}

TEST(Abort, LeavesNothingBehindInTwoHundredCycles) {
  for (int i = 0; i < 5; ++i) abort_once();
  const auto before = count_resources();
  for (int i = 0; i < 200; ++i) abort_once();
  EXPECT_EQ(count_resources(), before);
}

}  // namespace
}  // namespace lockstep::shm
