#include <gtest/gtest.h>

#include <atomic>

#include "shm/groups.hpp"
#include "support/throws.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using lockstep::testing::message_of;

/// Three ranks, of which rank 2 does something else; every rank must get the error, and get it again.
void expect_disagreement(const std::function<void(Exchange&, const Heap&)>& call,
                         const std::function<void(Exchange&, const Heap&)>& odd_call,
                         std::initializer_list<std::string_view> words) {
  run_group(3, [&](Group& group) {
    float own[64] = {};
    broadcast(group.exchange(), own, {64, Dtype::f32}, 0);
    const bool odd = group.exchange().rank() == 2;
    const auto begun = net::Clock::now();
    const auto text =
        message_of<CommunicationError>([&] { (odd ? odd_call : call)(group.exchange(), *group.heap()); });
    EXPECT_LT(net::Clock::now() - begun, std::chrono::seconds(30));
    EXPECT_TRUE(contains_all(text, words));
    EXPECT_TRUE(contains_all(text, {"rank " + std::to_string(group.exchange().rank()) + " of 3"}));
    EXPECT_EQ(message_of<CommunicationError>([&] { barrier(group.exchange()); }), text);
  });
}

auto reduces(std::size_t count, Dtype dtype, Reduction reduction) {
  return [=](Exchange& exchange, const Heap& heap) {
    double own[64] = {};
    all_reduce(exchange, heap, own, {count, dtype}, reduction);
  };
}

auto sends_from(int root) {
  return [=](Exchange& exchange, const Heap&) {
    float own[64] = {};
    broadcast(exchange, own, {10, Dtype::f32}, root);
  };
}

TEST(Agreement, OnTheOperation) {
  expect_disagreement(
      reduces(10, Dtype::f32, Reduction::sum), sends_from(0),
      {"rank 0 calls all_reduce #2 (float32, 10 elements, sum), rank 2 calls broadcast #2 (float32, 10 "
       "elements, root 0)"});
}

TEST(Agreement, OnTheDtypeOfTheSameBytes) {
  expect_disagreement(reduces(8, Dtype::f64, Reduction::sum), reduces(8, Dtype::i64, Reduction::sum),
                      {"float64, 8 elements", "int64, 8 elements"});
}

TEST(Agreement, OnTheCount) {
  expect_disagreement(reduces(8, Dtype::f32, Reduction::sum), reduces(9, Dtype::f32, Reduction::sum),
                      {"8 elements", "9 elements"});
}

TEST(Agreement, OnTheReduction) {
  expect_disagreement(reduces(8, Dtype::f32, Reduction::sum), reduces(8, Dtype::f32, Reduction::max),
                      {"sum", "max"});
}

TEST(Agreement, OnTheRoot) { expect_disagreement(sends_from(0), sends_from(1), {"root 0", "root 1"}); }

TEST(Agreement, OnWhatIsGathered) {
  const auto gathers = [](std::size_t count) {
    return [=](Exchange& exchange, const Heap&) {
      float own[64] = {}, places[3][64];
      void* outputs[] = {places[0], places[1], places[2]};
      all_gather(exchange, own, outputs, {count, Dtype::f32});
    };
  };
  expect_disagreement(gathers(5), gathers(6), {"all_gather #2 (float32, 5 elements)", "6 elements"});
}

TEST(Agreement, OnEveryPairOfAnAllToAll) {
  const auto exchanges = [](std::size_t expected_from_two) {
    return [=](Exchange& exchange, const Heap&) {
      float own[64] = {}, places[64];
      const Part parts[] = {{own, 4}, {own, 4}, {own, 4}};
      const Part outputs[] = {{places, 4}, {places, 4}, {places, expected_from_two}};
      all_to_all(exchange, parts, outputs, Dtype::f32);
    };
  };
  expect_disagreement(exchanges(4), exchanges(5), {"rank 2 sends 4 elements to rank 2, which expects 5"});
}

TEST(Leaving, IsNoticedByThoseWhoWait) {
  run_group(3, [&](Group& group) {
    barrier(group.exchange());
    if (group.exchange().rank() == 1) return;
    const auto text = message_of<CommunicationError>([&] { barrier(group.exchange()); });
    EXPECT_TRUE(contains_all(text, {"barrier #2 failed: rank 1 "}));
  });
}

/// The first to find out tells the others why it gave up.
TEST(Leaving, BringsNoRankToItsTimeout) {
  const auto begun = net::Clock::now();
  run_group(4, [&](Group& group) {
    if (group.exchange().rank() == 3) return;
    const auto text = message_of<CommunicationError>([&] { barrier(group.exchange()); });
    EXPECT_TRUE(contains_all(text, {"barrier #1 failed: rank "}));
  });
  EXPECT_LT(net::Clock::now() - begun, std::chrono::seconds(30));
}

TEST(Timeouts, NameWhoDidNotCome) {
  std::atomic<int> waiting{0};
  run_group(
      2,
      [&](Group& group) {
        if (group.exchange().rank() == 1) {
          while (waiting == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        try {
          barrier(group.exchange());
          FAIL() << "a barrier of one rank";
        } catch (const TimeoutError& error) {
          EXPECT_EQ(error.missing_ranks(), std::vector<int>{1});
          EXPECT_TRUE(contains_all(error.what(), {"barrier #1 timed out after 300 ms: rank 1 did not come",
                                                  "the last operation that it began is #0"}));
        }
        waiting = 1;
      },
      [](GroupOptions& options) { options.timeout = std::chrono::milliseconds(300); });
}

TEST(Meeting, OfRanksThatNeverComeIsATimeout) {
  MemoryBoard board;
  auto options = options_for(0, 2);
  options.join_timeout = std::chrono::milliseconds(100);
  EXPECT_THROW(Group::join(options, board), TimeoutError);
}

TEST(Meeting, WithoutMemoryIsAnErrorOnEveryRank) {
  MemoryBoard board;
  run_threads(2, [&](int rank) {
    auto options = options_for(rank, 2);
    if (rank == 1) options.staging_bytes = std::size_t{1} << 60;
    options.heap_bytes = 4096;
    const auto text = message_of<CommunicationError>([&] { Group::join(options, board); });
    EXPECT_TRUE(contains_all(text, {"rank 1 cannot share memory: cannot"}));
  });
}

/// A rank that posts a socket which nobody listens at, as one in another container of the host would.
class MisleadingBoard final : public Board {
 public:
  explicit MisleadingBoard(MemoryBoard& board) : board_(board) {}
  void post(const std::string& key, const std::string& value) override {
    const auto name = value.find("lockstep-");
    board_.post(key, name == std::string::npos ? value : std::string(value).replace(name, 9, "lockstop-"));
  }
  std::string read(const std::string& key, net::Deadline deadline) override {
    return board_.read(key, deadline);
  }

 private:
  MemoryBoard& board_;
};

TEST(Meeting, OfRanksThatCannotReachEachOtherIsNoError) {
  MemoryBoard board;
  MisleadingBoard misleading(board);
  run_threads(2, [&](int rank) {
    const auto joined =
        Group::join(options_for(rank, 2), rank == 0 ? static_cast<Board&>(misleading) : board);
    EXPECT_EQ(joined.group, nullptr);
    EXPECT_TRUE(contains_all(joined.obstacle, {"rank 0 cannot share memory: "}));
  });
}

}  // namespace
}  // namespace lockstep::shm
