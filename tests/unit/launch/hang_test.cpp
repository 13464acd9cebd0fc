#include "failure/hang.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

using std::chrono::seconds;

RankStatus view(int rank, Activity activity, const std::string& what, std::uint64_t number, int still,
                std::uint64_t step = 57) {
  RankStatus result;
  result.rank = rank;
  result.process = "node1, pid " + std::to_string(70 + rank);
  result.beat = HeartbeatRecord{.activity = activity, .what = what, .number = number, .step = step};
  result.still = seconds(still);
  return result;
}

RankStatus working(int rank, const std::string& what, int still) {
  return view(rank, Activity::working, what, 0, still);
}
RankStatus waiting(int rank, const std::string& what, std::uint64_t number, int still) {
  return view(rank, Activity::waiting, what, number, still);
}

RankStatus ended(RankStatus rank, int status) {
  rank.status = status;
  return rank;
}

std::string text_of(const std::vector<RankStatus>& views, int limit = 30) {
  const auto found = find_hang(views, seconds(limit));
  return found ? found->text : "";
}

TEST(Hang, WorkingRankIsNamedWhileOthersWait) {
  const std::vector<RankStatus> views{waiting(0, "all_reduce", 412, 30), waiting(1, "all_reduce", 412, 31),
                                      waiting(2, "all_reduce", 412, 30), working(3, "forward", 31)};
  EXPECT_EQ(text_of(views),
            "rank 3 (node1, pid 73) has made no progress for 31 s: last seen in forward, step 57; "
            "ranks 0, 1, 2 have been waiting in "
            "all_reduce #412 for 30 s");
  EXPECT_EQ(find_hang(views, seconds(30))->stuck, std::vector<int>{3});
  EXPECT_TRUE(find_hang(views, seconds(30))->somebody_waits);
}

TEST(Hang, IsNoneIfAnyRankMovesOrIsUnknown) {
  EXPECT_EQ(text_of({waiting(0, "barrier", 1, 99), working(1, "forward", 2)}), "");
  RankStatus silent;
  silent.rank = 1;
  EXPECT_EQ(text_of({waiting(0, "barrier", 1, 99), silent}), "") << "a rank that never beat";
  EXPECT_EQ(text_of({}), "");
  EXPECT_EQ(text_of({ended(waiting(0, "barrier", 1, 99), 0)}), "") << "all have ended";
}

TEST(Hang, OfRanksThatAllWorkIsReported) {
  const auto found = find_hang({working(0, "evaluation", 40), working(1, "evaluation", 41)}, seconds(30));
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->somebody_waits);
}

RankStatus held(RankStatus rank, char state) {
  rank.process_state = state;
  return rank;
}

TEST(Hang, StoppedRankIsNamedFirst) {
  EXPECT_EQ(
      text_of({working(0, "saving a checkpoint", 33), held(waiting(1, "all_reduce", 5, 33), 'T')}),
      "rank 1 (node1, pid 71) has made no progress for 33 s: it is stopped by a signal (SIGSTOP, SIGTSTP): "
      "SIGCONT continues it; last seen in all_reduce #5; "
      "rank 0 has been in saving a checkpoint, step 57 for 33 s");
  for (const char state : {'T', 't', 'D'}) {
    const auto found =
        find_hang({working(0, "forward", 33), held(waiting(1, "all_reduce", 5, 33), state)}, seconds(30));
    EXPECT_EQ(found->stuck, std::vector<int>{1}) << state;
    EXPECT_TRUE(found->is_certain);
  }
  EXPECT_EQ(
      find_hang({working(0, "forward", 33), held(waiting(1, "barrier", 5, 33), 'S')}, seconds(30))->stuck,
      std::vector<int>{0});
}

TEST(Hang, ExitedRanksAreNamed) {
  EXPECT_EQ(text_of({waiting(0, "all_reduce", 61, 31), ended(working(1, "forward", 90), 0)}),
            "rank 1 (node1, pid 71) left at step 57 (exit code 0); "
            "rank 0 has been waiting in all_reduce #61 for 31 s");
}

TEST(Hang, RankBehindIsNamedIfAllMayWait) {
  EXPECT_EQ(text_of({view(0, Activity::either, "backward", 0, 40, 8),
                     view(1, Activity::either, "backward", 0, 44, 7)}),
            "rank 1 (node1, pid 71) has made no progress for 44 s: last seen in backward, step 7; "
            "rank 0 has been waiting in backward, step 8 for 40 s");
}

TEST(Hang, RankAtAnotherPositionIsNamed) {
  EXPECT_EQ(text_of({waiting(0, "all_reduce", 5, 33), waiting(1, "all_reduce", 5, 33),
                     waiting(2, "barrier", 2, 33)}),
            "rank 2 (node1, pid 72) has made no progress for 33 s: last seen in barrier #2; "
            "ranks 0, 1 have been waiting in all_reduce #5 for 33 s");
}

TEST(Hang, NoRankIsNamedIfAllWaitTogether) {
  const auto found =
      find_hang({waiting(0, "all_reduce", 5, 33), waiting(1, "all_reduce", 5, 33)}, seconds(30));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->stuck.empty());
  EXPECT_NE(found->text.find("look at the network"), std::string::npos);
}

TEST(Hang, LongListsAreCut) {
  std::vector<RankStatus> views{working(0, "forward", 31)};
  for (int rank = 1; rank < 1000; ++rank) views.push_back(waiting(rank, "barrier", 1, 31));
  EXPECT_NE(text_of(views).find("15, 16 and 983 more have been waiting in barrier #1"), std::string::npos)
      << text_of(views);
}

TEST(Hang, RankBehindIsNamedIfAllWork) {
  const auto found = find_hang({view(0, Activity::working, "between steps", 0, 40, 8),
                                view(1, Activity::working, "forward", 0, 44, 7)},
                               seconds(30));
  EXPECT_EQ(found->stuck, std::vector<int>{1});
  EXPECT_TRUE(found->is_certain);
  EXPECT_EQ(found->text,
            "rank 1 (node1, pid 71) has made no progress for 44 s: last seen in forward, step 7; "
            "rank 0 has been in between steps, step 8 for 40 s");
}

TEST(LostPeers, ThatExitedAreNamedWithTheOthersPositions) {
  const auto left = ended(view(1, Activity::working, "x", 0, 2, 30), 0);
  const std::vector<RankStatus> ranks{ended(waiting(0, "all_reduce", 61, 1), 256), left,
                                      ended(working(2, "forward", 1), 256)};
  EXPECT_EQ(lost_peers(ranks, 0), "rank 1 left at step 30 (exit code 0) while rank 0 was in all_reduce #61");
  // A rank that waits for its GPU seems to work.
  EXPECT_EQ(lost_peers(ranks, 2),
            "rank 1 left at step 30 (exit code 0) while rank 2 was in forward, step 57");
  EXPECT_EQ(lost_peers(ranks, 3), "");
  EXPECT_EQ(lost_peers({ended(waiting(0, "all_reduce", 61, 1), 256), ended(working(1, "x", 1), 9)}, 0), "");
}

TEST(LostPeers, OfAnAbortedRankAreTheRanksBehind) {
  const auto aborted = [](int rank, const char* place, int step) {
    return ended(view(rank, Activity::working, place, 0, 12, step), SIGABRT);
  };
  const auto late = ended(view(1, Activity::working, "forward", 0, 31, 57), SIGTERM);
  const std::string named =
      "rank 1 (node1, pid 71) has made no progress for 31 s: last seen in forward, step 57";
  EXPECT_EQ(lost_peers({aborted(0, "between steps", 58), late, aborted(2, "between steps", 58)}, 0), named);
  EXPECT_EQ(lost_peers({aborted(0, "backward", 57), late, aborted(2, "backward", 57)}, 2), named);
  EXPECT_EQ(lost_peers({aborted(0, "forward", 57), late}, 0), "");
  EXPECT_EQ(lost_peers({aborted(0, "forward", 57), ended(working(1, "x", 1), 0)}, 0),
            "rank 1 left at step 57 (exit code 0) while rank 0 was in forward, step 57");
}

TEST(HangDetector, EndsTheJobOnceUnlessARankMoves) {
  HangDetector detector({.timeout = seconds(20)});
  const auto look = [&](int still) {
    const auto found = detector.look({waiting(0, "barrier", 1, still), working(1, "forward", still)});
    return !found ? "" : found->ends_job ? "end" : "notice";
  };
  EXPECT_STREQ(look(19), "");
  EXPECT_STREQ(look(20), "end");
  EXPECT_STREQ(look(21), "");
  EXPECT_STREQ(look(30), "notice");
  EXPECT_STREQ(look(59), "") << "the next notice is after twice the time";
  EXPECT_STREQ(look(1), "");
  EXPECT_STREQ(look(20), "end") << "they had moved";
}

TEST(HangDetector, ReportsOnlyCertainHangsIfRanksAreUnseen) {
  HangDetector detector({.timeout = seconds(20), .sees_all_ranks = false});
  EXPECT_FALSE(detector.look({waiting(0, "barrier", 1, 99), waiting(1, "barrier", 1, 99)}));
  EXPECT_TRUE(detector.look({waiting(0, "barrier", 1, 99), working(1, "forward", 99)}));
}

}  // namespace
}  // namespace lockstep::launch
