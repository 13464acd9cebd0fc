#include "lockstep/comm/store.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::message_of;

/// A loopback port that something listens on and never answers: the system chose it, so it is free of others.
class SilentListener {
 public:
  SilentListener() : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(descriptor_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(descriptor_, 16), 0);
    EXPECT_EQ(getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentListener() { close(descriptor_); }
  SilentListener(const SilentListener&) = delete;
  SilentListener& operator=(const SilentListener&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  int descriptor_;
  std::uint16_t port_ = 0;
};

std::uint16_t free_port() { return SilentListener().port(); }

World world_of(int rank, int size, std::uint16_t port) {
  World world;
  world.rank = world.local_rank = rank;
  world.world_size = world.local_world_size = size;
  world.master_addr = "127.0.0.1";
  world.master_port = port;
  return world;
}

TEST(Store, KeepsValues) {
  const Store store = Store::in_memory();
  store.set("a", std::string("x\0y", 3));
  EXPECT_EQ(store.get("a", milliseconds(10)), std::string("x\0y", 3));
  EXPECT_TRUE(store.contains("a"));
  EXPECT_FALSE(store.contains("b"));
  EXPECT_EQ(store.add("n", 3), 3);
  EXPECT_EQ(store.add("n", 4), 7);
  store.append("list", "1,");
  store.append("list", "2,");
  EXPECT_EQ(store.get("list", milliseconds(10)), "1,2,");
  EXPECT_EQ(store.set_if_absent("once", "first"), "first");
  EXPECT_EQ(store.set_if_absent("once", "second"), "first");
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.contains("a"));
}

TEST(Store, PrefixesKeepKeysApart) {
  const Store store = Store::in_memory();
  const Store first = store.with_prefix("one");
  const Store second = store.with_prefix("two");
  first.set("key", "1");
  second.set("key", "2");
  EXPECT_EQ(first.get("key", milliseconds(10)), "1");
  EXPECT_EQ(second.get("key", milliseconds(10)), "2");
  EXPECT_EQ(store.get("one/key", milliseconds(10)), "1");
}

TEST(Store, AWaitInVainNamesTheKey) {
  const Store store = Store::in_memory();
  EXPECT_FALSE(store.wait("absent", milliseconds(20)));
  const auto text = message_of<TimeoutError>([&] { store.get("absent", milliseconds(20)); });
  EXPECT_NE(text.find("no rank set 'absent' within 20 ms"), std::string::npos) << text;
}

TEST(Store, RanksShareTheTcpStoreAndRestartsDoNot) {
  const std::uint16_t port = free_port();
  testing::run_ranks(3, [&](int rank) {
    const Store store = Store::connect(world_of(rank, 3, port), milliseconds(20000));
    store.set("from/" + std::to_string(rank), std::to_string(rank * 10));
    for (int other = 0; other < 3; ++other) {
      EXPECT_EQ(store.get("from/" + std::to_string(other), milliseconds(20000)), std::to_string(other * 10));
    }
    EXPECT_EQ(store.local_address(), "127.0.0.1");
    if (store.add("left", 1) == 3) store.set("all_left", "1");
    EXPECT_TRUE(store.wait("all_left", milliseconds(20000)));
    EXPECT_GE(store.clone().add("seen", 1), 1);
    for (int i = 0; rank == 0 && i < 2000 && store.add("seen", 0) < 3; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  });
  World restarted = world_of(0, 1, port);
  restarted.restart_count = 1;
  EXPECT_FALSE(Store::connect(restarted, milliseconds(20000)).contains("from/0"));
}

TEST(Store, APortInUseIsNamedOnRankZero) {
  const SilentListener other;
  const auto text = message_of<CommunicationError>(
      [&] { Store::connect(world_of(0, 2, other.port()), milliseconds(2000)); });
  EXPECT_NE(text.find("cannot listen on port " + std::to_string(other.port())), std::string::npos) << text;
  EXPECT_NE(text.find("Address already in use"), std::string::npos) << text;
  EXPECT_NE(text.find("--master-port"), std::string::npos) << text;
}

TEST(Store, ASilentStrangerDoesNotHoldTheOthersUp) {
  const SilentListener other;
  const auto text =
      message_of<TimeoutError>([&] { Store::connect(world_of(1, 2, other.port()), milliseconds(300)); });
  EXPECT_NE(text.find("rank 1 cannot reach the job's store at 127.0.0.1:" + std::to_string(other.port())),
            std::string::npos)
      << text;
}

TEST(Store, NobodyListeningIsATimeout) {
  const std::uint16_t port = free_port();
  const auto text =
      message_of<TimeoutError>([&] { Store::connect(world_of(1, 2, port), milliseconds(300)); });
  EXPECT_NE(text.find("127.0.0.1:" + std::to_string(port)), std::string::npos) << text;
}

World with_token(World world, const std::string& token) {
  world.job_token = token;
  return world;
}

TEST(Store, TwoJobsOnOnePortAreToldApart) {
  const std::uint16_t port = free_port();
  const Store store = Store::connect(with_token(world_of(0, 2, port), "one"), milliseconds(20000));
  store.set("key", "value");
  const Store same = Store::connect(with_token(world_of(1, 2, port), "one"), milliseconds(20000));
  EXPECT_EQ(same.get("key", milliseconds(20000)), "value");
  const auto text = message_of<CommunicationError>(
      [&] { Store::connect(with_token(world_of(1, 2, port), "two"), milliseconds(20000)); });
  EXPECT_NE(text.find("another job listens"), std::string::npos) << text;
  EXPECT_EQ(text.find("two"), std::string::npos) << text;
}

TEST(Store, ARankWithoutATokenIsServedOnItsOwnHost) {
  const std::uint16_t port = free_port();
  const Store store = Store::connect(with_token(world_of(0, 2, port), "one"), milliseconds(20000));
  Store::connect(world_of(1, 2, port), milliseconds(20000)).set("from", "a plain client");
  EXPECT_EQ(store.get("from", milliseconds(20000)), "a plain client");
}

TEST(Store, AWaitHoldsToItsDeadlineWhenTheHostIsGone) {
  const std::uint16_t port = free_port();
  auto host = std::make_unique<Store>(Store::connect(world_of(0, 2, port), milliseconds(20000)));
  const Store store = Store::connect(world_of(1, 2, port), milliseconds(20000));
  host.reset();
  const auto text = message_of<CommunicationError>([&] { store.wait("key", milliseconds(20000)); });
  EXPECT_NE(text.find("store: wait for 'key'"), std::string::npos) << text;
}

TEST(Store, AHostThatDoesNotResolveIsNamed) {
  World world = world_of(0, 2, 29500);
  world.master_addr = "no-such-host.invalid";
  const auto text = message_of<CommunicationError>([&] { Store::connect(world, milliseconds(300)); });
  EXPECT_NE(text.find("MASTER_ADDR='no-such-host.invalid' does not resolve"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
