#include "net/store/server.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "lockstep/core/error.hpp"
#include "net/socket.hpp"
#include "net/store/client.hpp"
#include "support/throws.hpp"

namespace lockstep::net {
namespace {

Deadline in(int milliseconds) { return Clock::now() + Milliseconds(milliseconds); }
Deadline soon() { return in(20000); }

StoreClient client_of(const Server& server, const std::string& secret = "") {
  return StoreClient({server.address()}, {.secret = secret}, soon());
}

/// Until the server's thread has done what it was told by another connection.
template <class Condition>
bool eventually(Condition&& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(Milliseconds(5));
  }
  return false;
}

bool has_events(const Server& server) {
  pollfd entry{server.events_descriptor(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

TEST(Server, OwnerAndClientsShareOneTable) {
  Server server(listen_on_loopback(0));
  StoreClient client = client_of(server);
  server.set("from/owner", "1");
  EXPECT_EQ(client.get("from/owner", soon()), "1");
  client.set("from/client", "2", soon());
  client.ping(soon());
  EXPECT_EQ(server.get("from/client"), "2");
  EXPECT_EQ(server.add("n", 3), 3);
  EXPECT_EQ(client.add("n", 4, soon()), 7);
  EXPECT_TRUE(server.get("n"));
  EXPECT_TRUE(client.erase("n", soon()));
  EXPECT_FALSE(client.contains({"n"}, soon()));
  EXPECT_EQ(server.get("n"), std::nullopt);
}

TEST(Server, TheOwnersSetEndsAWait) {
  Server server(listen_on_loopback(0));
  StoreClient client = client_of(server);
  std::thread owner([&] {
    std::this_thread::sleep_for(Milliseconds(30));
    server.set("late", "value");
  });
  EXPECT_EQ(client.get("late", soon()), "value");
  owner.join();
}

TEST(Server, ClientsCountThemselves) {
  Server server(listen_on_loopback(0));
  EXPECT_EQ(server.client_count(), 0);
  EXPECT_EQ(client_of(server).register_client(soon()), 1);
  EXPECT_EQ(client_of(server).register_client(soon()), 2);
  EXPECT_EQ(server.client_count(), 2);
}

TEST(Server, OwnerIsToldOfWatchedKeys) {
  Server server(listen_on_loopback(0));
  server.watch("exits/");
  StoreClient client = client_of(server);
  client.set("other", "1", soon());
  client.ping(soon());
  EXPECT_FALSE(has_events(server));
  client.set("exits/1", "1", soon());
  client.add("exits/1", 1, soon());
  EXPECT_TRUE(eventually([&] { return has_events(server); }));
  EXPECT_EQ(server.take_events().changed_keys, std::vector<std::string>{"exits/1"});
  EXPECT_TRUE(server.take_events().changed_keys.empty());
  EXPECT_FALSE(has_events(server));
}

TEST(Server, ClearEndsEveryClientAndKeepsThePrefix) {
  Server server(listen_on_loopback(0));
  StoreClient before = client_of(server);
  before.set("job/id", "7", soon());
  before.set("barrier", "1", soon());
  before.register_client(soon());
  std::thread waiting([&] { EXPECT_THROW(client_of(server).get("never", soon()), CommunicationError); });
  EXPECT_TRUE(eventually([&] { return server.counts().open == 2; }));
  std::this_thread::sleep_for(Milliseconds(20));
  server.clear("job/");
  waiting.join();
  EXPECT_THROW(before.ping(soon()), CommunicationError);
  EXPECT_THROWS(before.ping(soon()), CommunicationError, "lost earlier");
  EXPECT_EQ(server.get("job/id"), "7");
  EXPECT_FALSE(server.get("barrier"));
  EXPECT_EQ(server.client_count(), 0);
  StoreClient after = client_of(server);
  EXPECT_EQ(after.get("job/id", soon()), "7");
}

TEST(Server, StopEndsEveryClient) {
  Server server(listen_on_loopback(0));
  StoreClient client = client_of(server);
  const Address address = server.address();
  server.set("k", "v");
  server.stop();
  server.stop();
  EXPECT_THROW(client.ping(soon()), CommunicationError);
  EXPECT_THROW(connect_to({address}, in(30)), TimeoutError);
  EXPECT_EQ(server.get("k"), "v");
}

TEST(Server, OldestUnauthenticatedClientMakesRoom) {
  Server server(listen_on_loopback(0), {.most_unauthenticated = 3});
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(connect_to({server.address()}, soon()));
  EXPECT_TRUE(eventually([&] { return server.counts().turned_away == 1; }));
  EXPECT_EQ(server.counts().open, 3U);
  pollfd first{silent.front().get(), POLLIN, 0};
  EXPECT_EQ(poll(&first, 1, 20000), 1) << "the first one is closed";
  client_of(server).ping(soon());
}

TEST(Server, StartsAndStopsWithoutAClient) {
  for (int i = 0; i < 100; ++i) Server(listen_on_loopback(0));
}

TEST(Server, TwoHundredClientsAtOnce) {
  Server server(listen_on_loopback(0));
  std::vector<StoreClient> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(client_of(server));
  for (auto& client : clients) client.add("sum", 1, soon());
  EXPECT_EQ(server.get("sum"), "200");
  EXPECT_EQ(server.counts().open, 200U);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return server.counts().open == 0; }));
}

TEST(Server, GivesMemoryBack) {
  Server server(listen_on_loopback(0));
  {
    StoreClient client = client_of(server);
    client.set("large", std::string(8 << 20, 'x'), soon());
    client.push("queue", std::string(1 << 20, 'x'), soon());
    EXPECT_EQ(client.get("large", soon()).size(), 8U << 20);
    EXPECT_FALSE(client.wait({"absent"}, in(10)));
    EXPECT_GT(server.counts().bytes, 9U << 20);
    client.erase("large", soon());
    client.pop("queue", soon());
    client.ping(soon());
  }
  EXPECT_TRUE(eventually([&] { return server.counts().bytes == 0; })) << server.counts().bytes;
}

TEST(StoreClient, KnowsEveryRequest) {
  Server server(listen_on_loopback(0));
  StoreClient client = client_of(server);
  EXPECT_EQ(client.compare_set("cs", "", "x", soon()), "x");
  EXPECT_EQ(client.compare_set("cs", "y", "z", soon()), "x");
  EXPECT_EQ(client.compare_set("none", "y", "z", soon()), "y");
  client.append("ap", "12", soon());
  client.append("ap", "3", soon());
  EXPECT_EQ(client.get("ap", soon()), "123");
  client.set_many({"a", "b"}, {"1", "2"}, soon());
  EXPECT_EQ(client.get_many({"b", "a"}, soon()), (std::vector<std::string>{"2", "1"}));
  EXPECT_EQ(client.count(soon()), 4);
  EXPECT_EQ(client.keys(soon()).size(), 4U);
  EXPECT_TRUE(client.erase("a", soon()));
  EXPECT_FALSE(client.erase("a", soon()));
  EXPECT_EQ(client.pop("q", soon()), std::nullopt);
  client.push("q", "1", soon());
  EXPECT_EQ(client.length("q", soon()), 1);
  EXPECT_EQ(client.pop("q", soon()), "1");
}

TEST(StoreClient, TimedOutWaitLeavesTheConnectionUsable) {
  Server server(listen_on_loopback(0));
  StoreClient client = client_of(server);
  EXPECT_FALSE(client.wait({"absent"}, in(20)));
  EXPECT_THROWS(client.get("absent", in(20)), TimeoutError, "no rank set 'absent'");
  EXPECT_FALSE(client.wait({"absent"}, in(-1000)));
  client.set("there", "1", soon());
  EXPECT_EQ(client.get("there", in(-1000)), "1");
}

TEST(StoreClient, RefusesOversizedKeysAndValues) {
  Server server(listen_on_loopback(0));
  StoreClient client = client_of(server);
  EXPECT_THROWS(client.set(std::string(kLongestKey, 'k'), "", soon()), UsageError, "8192");
  EXPECT_THROWS(client.set("k", std::string(kLongestValue + 1, 'v'), soon()), UsageError, "8388608");
  EXPECT_THROWS(client.set_many({"k"}, {}, soon()), UsageError, "1 keys and 0 values");
  client.ping(soon());
}

}  // namespace
}  // namespace lockstep::net
