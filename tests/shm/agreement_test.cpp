#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>

#include "shm/bootstrap.hpp"
#include "shm/groups.hpp"
#include "support/throws.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;
using lockstep::testing::contains_all;
using lockstep::testing::message_of;

/// Three ranks, of which rank 2 does something else; every rank must get the error, and get it again.
void expect_disagreement(const std::function<void(StepSync&, const Heap&)>& call,
                         const std::function<void(StepSync&, const Heap&)>& odd_call,
                         std::initializer_list<std::string_view> words) {
  run_group(3, [&](Group& group) {
    float own[64] = {};
    broadcast(group.step_sync(), own, {64, Dtype::f32}, 0);
    const bool odd = group.step_sync().rank() == 2;
    const auto begun = net::Clock::now();
    const auto text =
        message_of<CommunicationError>([&] { (odd ? odd_call : call)(group.step_sync(), *group.heap()); });
    EXPECT_LT(net::Clock::now() - begun, std::chrono::seconds(30));
    EXPECT_TRUE(contains_all(text, words));
    EXPECT_TRUE(contains_all(text, {"rank " + std::to_string(group.step_sync().rank()) + " of 3"}));
    EXPECT_EQ(message_of<CommunicationError>([&] { barrier(group.step_sync()); }), text);
  });
}

auto reduces(std::size_t count, Dtype dtype, Reduction reduction) {
  return [=](StepSync& sync, const Heap& heap) {
    double own[64] = {};
    all_reduce(sync, heap, own, {count, dtype}, reduction);
  };
}

auto sends_from(int root) {
  return [=](StepSync& sync, const Heap&) {
    float own[64] = {};
    broadcast(sync, own, {10, Dtype::f32}, root);
  };
}

TEST(Agreement, OnTheOperation) {
  expect_disagreement(
      reduces(10, Dtype::f32, Reduction::sum), sends_from(0),
      {"rank 0 called all_reduce #2 (float32, 10 elements, sum), rank 2 called broadcast #2 (float32, 10 "
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
    return [=](StepSync& sync, const Heap&) {
      float own[64] = {}, places[3][64];
      void* outputs[] = {places[0], places[1], places[2]};
      all_gather(sync, own, outputs, {count, Dtype::f32});
    };
  };
  expect_disagreement(gathers(5), gathers(6), {"all_gather #2 (float32, 5 elements)", "6 elements"});
}

TEST(Agreement, OnEveryPairOfAnAllToAll) {
  const auto exchanges = [](std::size_t expected_from_two) {
    return [=](StepSync& sync, const Heap&) {
      float own[64] = {}, places[64];
      const Part parts[] = {{own, 4}, {own, 4}, {own, 4}};
      const Part outputs[] = {{places, 4}, {places, 4}, {places, expected_from_two}};
      all_to_all(sync, parts, outputs, Dtype::f32);
    };
  };
  expect_disagreement(exchanges(4), exchanges(5), {"rank 2 sends 4 elements to rank 2, which expects 5"});
}

TEST(Leaving, IsNoticedByThoseWhoWait) {
  run_group(3, [&](Group& group) {
    barrier(group.step_sync());
    if (group.step_sync().rank() == 1) return;
    const auto text = message_of<CommunicationError>([&] { barrier(group.step_sync()); });
    EXPECT_TRUE(contains_all(text, {"barrier #2 failed: rank 1 "}));
  });
}

/// The first to find out tells the others why it gave up.
TEST(Leaving, BringsNoRankToItsTimeout) {
  const auto begun = net::Clock::now();
  run_group(4, [&](Group& group) {
    if (group.step_sync().rank() == 3) return;
    const auto text = message_of<CommunicationError>([&] { barrier(group.step_sync()); });
    EXPECT_TRUE(contains_all(text, {"barrier #1 failed: rank "}));
  });
  EXPECT_LT(net::Clock::now() - begun, std::chrono::seconds(30));
}

TEST(Timeouts, NameTheRanksThatDidNotArrive) {
  std::atomic<int> waiting{0};
  run_group(
      2,
      [&](Group& group) {
        if (group.step_sync().rank() == 1) {
          while (waiting == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        try {
          barrier(group.step_sync());
          FAIL() << "a barrier of one rank";
        } catch (const TimeoutError& error) {
          EXPECT_EQ(error.missing_ranks(), std::vector<int>{1});
          EXPECT_TRUE(contains_all(error.what(), {"barrier #1 timed out after 300 ms: rank 1 did not arrive",
                                                  "the last operation that it started is #0"}));
        }
        waiting = 1;
      },
      [](GroupOptions& options) { options.timeout = std::chrono::milliseconds(300); });
}

TEST(PeerConnections, ToRanksThatNeverConnectTimeOut) {
  MemoryBootstrapStore store;
  auto options = options_for(0, 2);
  options.join_timeout = std::chrono::milliseconds(100);
  EXPECT_THROW(Group::join(options, store), TimeoutError);
}

TEST(PeerConnections, WithoutMemoryIsAnErrorOnEveryRank) {
  MemoryBootstrapStore store;
  run_threads(2, [&](int rank) {
    auto options = options_for(rank, 2);
    if (rank == 1) options.staging_bytes = std::size_t{1} << 60;
    options.heap_bytes = 4096;
    const auto text = message_of<CommunicationError>([&] { Group::join(options, store); });
    EXPECT_TRUE(contains_all(text, {"rank 1 cannot share memory: cannot"}));
  });
}

/// A rank that posts a socket which nobody listens at, as one in another container of the host would.
class MisleadingBootstrapStore final : public BootstrapStore {
 public:
  explicit MisleadingBootstrapStore(MemoryBootstrapStore& store) : store_(store) {}
  void post(const std::string& key, const std::string& value) override {
    const auto name = value.find("lockstep-");
    store_.post(key, name == std::string::npos ? value : std::string(value).replace(name, 9, "lockstop-"));
  }
  std::string read(const std::string& key, net::Deadline deadline) override {
    return store_.read(key, deadline);
  }

 private:
  MemoryBootstrapStore& store_;
};

TEST(PeerConnections, OfRanksThatCannotReachEachOtherIsNoError) {
  MemoryBootstrapStore store;
  MisleadingBootstrapStore misleading(store);
  run_threads(2, [&](int rank) {
    const auto joined =
        Group::join(options_for(rank, 2), rank == 0 ? static_cast<BootstrapStore&>(misleading) : store);
    EXPECT_EQ(joined.group, nullptr);
    EXPECT_TRUE(contains_all(joined.obstacle, {"rank 0 cannot share memory: "}));
  });
}

/// Before the others hear of rank 0's local socket, processes that are no ranks of the group connect to it:
/// one says nothing, one hangs up, and one sends what is no greeting.
class BesiegedBootstrapStore final : public BootstrapStore {
 public:
  explicit BesiegedBootstrapStore(MemoryBootstrapStore& store) : store_(store) {}
  void post(const std::string& key, const std::string& value) override {
    if (key == "address/0") besiege(PeerAddress::read(value).socket);
    store_.post(key, value);
  }
  std::string read(const std::string& key, net::Deadline deadline) override {
    return store_.read(key, deadline);
  }

 private:
  void besiege(const std::string& socket) {
    const auto deadline = net::Clock::now() + std::chrono::seconds(10);
    connect_locally(socket, deadline);  // And closed at once.
    silent_ = connect_locally(socket, deadline);
    stranger_ = connect_locally(socket, deadline);
    ASSERT_EQ(send(stranger_.get(), "hello", 5, MSG_NOSIGNAL), 5);
  }

  MemoryBootstrapStore& store_;
  net::FileDescriptor silent_, stranger_;
};

TEST(PeerConnections, OutlastStrangersAtALocalSocket) {
  MemoryBootstrapStore store;
  BesiegedBootstrapStore besieged(store);
  run_threads(4, [&](int rank) {
    const auto joined =
        Group::join(options_for(rank, 4), rank == 0 ? static_cast<BootstrapStore&>(besieged) : store);
    ASSERT_NE(joined.group, nullptr) << joined.obstacle;
    EXPECT_EQ(joined.obstacle, "");
    barrier(joined.group->step_sync());
  });
}

/// A rank that cannot be talked with (here: what it was told as the secret of rank 0 is wrong) is left out,
/// and the ranks behind it are not.
class ForgetfulBootstrapStore final : public BootstrapStore {
 public:
  explicit ForgetfulBootstrapStore(MemoryBootstrapStore& store) : store_(store) {}
  void post(const std::string& key, const std::string& value) override { store_.post(key, value); }
  std::string read(const std::string& key, net::Deadline deadline) override {
    const std::string value = store_.read(key, deadline);
    if (key != "address/0") return value;
    PeerAddress address = PeerAddress::read(value);
    address.secret.assign(address.secret.size(), 'x');
    return address.text();
  }

 private:
  MemoryBootstrapStore& store_;
};

TEST(PeerConnections, LeaveOutOnlyTheRankThatIsBad) {
  MemoryBootstrapStore store;
  ForgetfulBootstrapStore forgetful(store);
  run_threads(4, [&](int rank) {
    const auto joined =
        Group::join(options_for(rank, 4), rank == 1 ? static_cast<BootstrapStore&>(forgetful) : store);
    const std::vector<std::vector<int>> expected{{0, 2, 3}, {1}};
    EXPECT_EQ(joined.hosts.ranks, expected);
  });
}

}  // namespace
}  // namespace lockstep::shm
