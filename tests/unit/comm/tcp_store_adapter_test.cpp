#include "comm/tcp_store_adapter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "net/socket.hpp"
#include "support/ranks.hpp"

namespace lockstep::comm {
namespace {

using Bytes = std::vector<std::uint8_t>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;
using std::chrono::milliseconds;

Bytes bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

/// What a call gives, or the kind of its failure.
std::string outcome(const std::function<std::string()>& call) {
  try {
    return call();
  } catch (const c10::DistQueueEmptyError&) {
    return "(queue empty)";
  } catch (const c10::DistStoreError&) {
    return "(store error)";
  } catch (const c10::DistNetworkError&) {
    return "(network error)";
  }
}

/// Every virtual method of a store, and what each gave.
std::vector<std::string> talk(c10d::Store& store) {
  std::vector<std::string> said;
  const auto say = [&](const std::function<std::string()>& call) { said.push_back(outcome(call)); };
  const auto flag = [](bool value) { return std::string(value ? "yes" : "no"); };
  store.set("a", bytes(std::string("x\0y", 3)));
  say([&] { return text(store.get("a")); });
  say([&] { return std::to_string(store.add("n", 5)); });
  say([&] { return std::to_string(store.add("n", -7)); });
  say([&] { return text(store.compareSet("cs", bytes(""), bytes("1"))); });
  say([&] { return text(store.compareSet("cs", bytes("2"), bytes("3"))); });
  say([&] { return text(store.compareSet("none", bytes("2"), bytes("3"))); });
  say([&] { return flag(store.check({"a", "n"})) + flag(store.check({"none"})) + flag(store.check({})); });
  store.append("ap", bytes("12"));
  store.append("ap", bytes("3"));
  store.multiSet({"m1", "m2"}, {bytes("x"), bytes("yy")});
  say([&] { return text(store.multiGet({"ap", "m2"})[0]) + text(store.multiGet({"ap", "m2"})[1]); });
  say([&] { return std::to_string(store.getNumKeys()); });
  say([&] {
    auto keys = store.listKeys();
    std::sort(keys.begin(), keys.end());
    std::string all;
    for (const auto& key : keys) all += key + ",";
    return all;
  });
  say([&] { return flag(store.deleteKey("cs")) + flag(store.deleteKey("cs")); });
  say([&] { return flag(store.hasExtendedApi()); });
  say([&] { return (store.queuePush("q", bytes("one")), std::to_string(store.queueLen("q"))); });
  say([&] { return text(store.queuePop("q", true)); });
  say([&] { return text(store.queuePop("q", false)); });
  say([&] { return (store.wait({"a"}, milliseconds(20000)), "there"); });
  say([&] { return (store.wait({"none"}, milliseconds(20)), "there"); });
  store.setTimeout(milliseconds(20));
  say([&] { return (store.wait({"none"}), "there"); });
  say([&] { return text(store.get("none")); });
  say([&] { return text(store.multiGet({"none"})[0]); });
  say([&] { return text(store.queuePop("q", true)); });
  return said;
}

StorePointer at(const net::Address& address) {
  return make_tcp_store_adapter(std::vector{address}, net::StoreClientOptions{}, milliseconds(20000));
}

c10d::TCPStoreOptions theirs(std::uint16_t port, bool is_server) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = is_server;
  options.waitWorkers = false;
  return options;
}

TEST(TcpStoreAdapter, SaysWhatTheirClientSaysAtEitherServer) {
  const c10d::TCPStore server("127.0.0.1", theirs(0, true));
  net::Server own(net::listen_on_loopback(0)), other(net::listen_on_loopback(0));
  c10d::TCPStore their_client("127.0.0.1", theirs(own.address().port(), false));
  const auto expected = talk(their_client);
  EXPECT_EQ(expected.size(), 21U);
  EXPECT_EQ(talk(*at(other.address())), expected);
  EXPECT_EQ(talk(*at(net::Address::loopback(server.getPort()))), expected);
}

TEST(TcpStoreAdapter, WorksBehindAPrefix) {
  net::Server server(net::listen_on_loopback(0));
  c10d::PrefixStore prefixed("one", at(server.address()));
  prefixed.set("key", bytes("1"));
  prefixed.wait({"key"}, milliseconds(20000));
  EXPECT_EQ(server.get("one/key"), "1");
}

TEST(TcpStoreAdapter, ACloneWaitsWhileTheStoreWorks) {
  net::Server server(net::listen_on_loopback(0));
  const StorePointer store = at(server.address());
  const StorePointer clone = store->clone();
  testing::run_ranks(2, [&](int rank) {
    if (rank == 0) {
      clone->wait({"late"}, milliseconds(20000));
    } else {
      store->set("late", bytes("1"));
    }
  });
  EXPECT_EQ(server.counts().open, 2U);
}

TEST(TcpStoreAdapter, KeepsTheServerThatItsProcessHosts) {
  StorePointer clone;
  {
    auto server = std::make_shared<net::Server>(net::listen_on_loopback(0));
    const std::vector addresses{server->address()};
    clone =
        make_tcp_store_adapter(addresses, net::StoreClientOptions{}, milliseconds(20000), server)->clone();
  }
  clone->set("k", bytes("v"));
  EXPECT_EQ(text(clone->get("k")), "v");
}

TEST(TcpStoreAdapter, ALostServerIsANetworkError) {
  net::Server server(net::listen_on_loopback(0));
  const StorePointer store = at(server.address());
  server.stop();
  EXPECT_THROW(store->add("n", 1), c10::DistNetworkError);
  EXPECT_THROW(store->add("n", 1), c10::DistNetworkError);
}

}  // namespace
}  // namespace lockstep::comm
