// The coordinator with its server, its connections and the store, in one process.

#include "rendezvous/local_coordinator_client.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "lockstep/core/error.hpp"
#include "net/handshake.hpp"
#include "net/socket.hpp"
#include "net/store/client.hpp"
#include "rendezvous/remote_coordinator_client.hpp"
#include "torchrun_interop/torchrun_server.hpp"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using net::Clock;

Clock::time_point soon() { return Clock::now() + 30s; }

CoordinatorOptions nodes(int count, int restarts = 0) {
  CoordinatorOptions options;
  options.max_restarts = restarts;
  options.min_nodes = options.max_nodes = count;
  return options;
}

NodeInfo node(int count) { return {.run_id = "none", .host = "a", .min_nodes = count, .max_nodes = count}; }

/// A coordinator whose own node has joined.
struct Host {
  explicit Host(int count, int restarts = 0)
      : client(nodes(count, restarts), make_server(), {"127.0.0.1", 0},
               "this launcher uses a secret of the test") {
    client.send(node(count), Clock::now());
  }
  std::unique_ptr<net::Server> make_server() {
    auto made = std::make_unique<net::Server>(net::listen_on_loopback(0), net::ServerOptions{.secret = "s"});
    address = made->address();
    return made;
  }
  void work(Clock::time_point now = Clock::now()) {
    for (auto& message : client.work(now)) received.push_back(std::move(message));
  }
  template <class Condition>
  bool eventually(const Condition& condition) {
    for (const auto end = soon(); Clock::now() < end; std::this_thread::sleep_for(1ms)) {
      work();
      if (condition()) return true;
    }
    return false;
  }
  bool has_said(const std::string& part) const {
    return std::any_of(received.begin(), received.end(), [&](const CoordinatorMessage& message) {
      const auto* notice = std::get_if<Notice>(&message);
      return notice != nullptr && notice->text.find(part) != std::string::npos;
    });
  }

  net::Address address;
  std::vector<CoordinatorMessage> received;
  LocalCoordinatorClient client;
};

RemoteCoordinatorClient::Options joining(const Host& host, const std::string& secret) {
  RemoteCoordinatorClient::Options options;
  options.endpoint = {host.address.host(), host.address.port()};
  options.secret = secret;
  options.secret_name = "that launcher uses another one";
  return options;
}

TEST(LocalCoordinatorClient, MessagesReachTheLocalAndARemoteNode) {
  Host host(2);
  RemoteCoordinatorClient remote(joining(host, "s"), Clock::now());
  remote.send(node(2), Clock::now());
  std::vector<CoordinatorMessage> received;
  const auto assigned = [&] {
    for (auto& message : remote.work(Clock::now())) received.push_back(std::move(message));
    return !received.empty() && std::holds_alternative<Assignment>(received.back());
  };
  ASSERT_TRUE(host.eventually(assigned));
  EXPECT_EQ(std::get<Assignment>(received.back()).group_rank, 1);
  EXPECT_TRUE(std::holds_alternative<Assignment>(host.received.back()));
}

/// Each over a connection of its own, of which the coordinator reads only those that have something to say.
TEST(LocalCoordinatorClient, ManyNodesJoinAndTheLossOfOneIsToldToAll) {
  constexpr int kNodes = 200;
  Host host(kNodes);
  std::vector<MessageConnection> remote;
  std::thread joining([&] {
    for (int i = 1; i < kNodes; ++i) {
      remote.emplace_back(net::connect_control({host.address}, "s", soon()));
      remote.back().send(node(kNodes));
    }
  });
  const auto is_assigned = [&] {
    return !host.received.empty() && std::holds_alternative<Assignment>(host.received.back());
  };
  const bool assigned = host.eventually(is_assigned);
  joining.join();
  ASSERT_TRUE(assigned);
  remote.back().close("test");
  remote.pop_back();
  std::set<int> ranks;
  std::size_t stopped = 0;
  const auto all_told = [&] {
    for (auto& connection : remote) {
      for (const auto& message : connection.receive<CoordinatorMessage>()) {
        if (const auto* assignment = std::get_if<Assignment>(&message)) ranks.insert(assignment->group_rank);
        if (std::holds_alternative<StopRound>(message)) ++stopped;
      }
    }
    return stopped == remote.size();
  };
  EXPECT_TRUE(host.eventually(all_told));
  EXPECT_EQ(ranks.size(), remote.size());
  EXPECT_TRUE(host.has_said("closed its connection"));
}

TEST(LocalCoordinatorClient, LauncherWithAnotherSecretIsRefusedOnBothSides) {
  Host host(2);
  RemoteCoordinatorClient remote(joining(host, "guess"), Clock::now());
  std::vector<CoordinatorMessage> received;
  ASSERT_TRUE(host.eventually([&] {
    for (auto& message : remote.work(Clock::now())) received.push_back(std::move(message));
    return !received.empty();
  }));
  EXPECT_NE(std::get<CoordinatorLost>(received.front()).text.find("that launcher uses another one"),
            std::string::npos);
  EXPECT_TRUE(host.eventually([&] {
    return host.has_said(
        "refused a launcher from 127.0.0.1: it has a different secret; "
        "this launcher uses a secret of the test");
  }));
}

TEST(LocalCoordinatorClient, TorchrunsRendezvousIsRefusedByName) {
  Host host(2);
  host.client.allow([](net::Server& server, Coordinator& coordinator) {
    return std::make_unique<TorchrunRejecter>(server, coordinator);
  });
  net::StoreClient torchrun({host.address}, {}, soon());
  torchrun.compare_set("torch.rendezvous.none", "", "Y2FuaW1hZGFt", soon());
  EXPECT_TRUE(host.eventually([&] { return host.has_said("refused torchrun's agent"); }));
  EXPECT_NE(torchrun.get("torch.rendezvous.none", soon()), "Y2FuaW1hZGFt");
}

/// What the ranks of a round have stored would be a leak in a job of many restarts.
TEST(LocalCoordinatorClient, RestartsBeginWithoutTheKeysOfTheLastRound) {
  Host host(1, 1);
  host.client.allow([](net::Server& server, Coordinator& coordinator) {
    return std::make_unique<TorchrunServer>("none", 1, server, coordinator);
  });
  net::StoreClient rank({host.address}, {}, soon());
  rank.set("lockstep/0/address", "1", soon());
  rank.set("none/torchelastic/agent/terminal_state/num_members", "1", soon());
  // set() has no answer; a question behind it has.
  ASSERT_TRUE(rank.contains({"none/torchelastic/agent/terminal_state/num_members"}, soon()));
  host.work();
  ProcessFailure failure;
  failure.status = 1 << 8;
  host.client.send(RankFailed{1, failure}, Clock::now());
  host.client.send(RoundEnded{.round = 1, .ok = false}, Clock::now());
  ASSERT_TRUE(host.eventually([&] {
    return std::ranges::count_if(host.received, [](const auto& message) {
             return std::holds_alternative<Assignment>(message);
           }) == 2;
  }));
  net::StoreClient next({host.address}, {}, soon());
  EXPECT_FALSE(next.contains({"lockstep/0/address"}, soon()));
  EXPECT_TRUE(next.contains({"none/torchelastic/agent/terminal_state/num_members"}, soon()));
}

/// A job that has ended while torchrun agents may still need the store.
struct AnyNodes final : StoreNodes {
  void on_keys(const std::vector<std::string>&, Coordinator::Time) override {}
  void send(NodeId, const CoordinatorMessage&) override {}
  bool any() const override { return true; }
  bool may_come_from(const net::Address&) const override { return true; }
};

TEST(LocalCoordinatorClient, StoreIsServedUntilTorchrunsClientsLeft) {
  for (const bool goes : {true, false}) {
    Host host(1);
    host.client.allow([](net::Server&, Coordinator&) { return std::make_unique<AnyNodes>(); });
    auto torchrun =
        std::make_unique<net::StoreClient>(std::vector{host.address}, net::StoreClientOptions{}, soon());
    host.client.send(RoundEnded{.round = 1, .ok = true}, Clock::now());
    const auto end = Clock::now();
    host.work(end);
    EXPECT_FALSE(host.client.finished());
    EXPECT_LE(host.client.deadline(), end + 2s);
    if (goes) {
      torchrun.reset();
      EXPECT_TRUE(host.eventually([&] { return host.client.finished(); }));
    } else {
      host.work(end + 2s);
      EXPECT_TRUE(host.client.finished()) << "2 s at most";
    }
  }
}

TEST(LocalCoordinatorClient, LostTorchrunAgentEndsTheJobAtOnce) {
  Host host(2);
  host.client.allow([](net::Server& server, Coordinator& coordinator) {
    return std::make_unique<TorchrunServer>("none", 2, server, coordinator);
  });
  auto torchrun =
      std::make_unique<net::StoreClient>(std::vector{host.address}, net::StoreClientOptions{}, soon());
  torchrun->set("none/torchelastic/role_info/1", R"({"role": "default", "rank": 1, "local_world_size": 1})",
                soon());
  const auto got = [&]<class Message>(Message) {
    return host.eventually(
        [&] { return !host.received.empty() && std::holds_alternative<Message>(host.received.back()); });
  };
  ASSERT_TRUE(got(Assignment{}));
  host.client.send(RoundEnded{.round = 1, .ok = true}, Clock::now());
  EXPECT_LE(host.client.deadline(), Clock::now()) << "nothing else wakes the agent";
  host.work();
  EXPECT_LE(host.client.deadline(), Clock::now() + 1s);
  EXPECT_TRUE(std::holds_alternative<Assignment>(host.received.back())) << "it may still succeed";
  torchrun.reset();
  ASSERT_TRUE(got(Finish{}));
  const auto& finish = std::get<Finish>(host.received.back());
  EXPECT_EQ(finish.exit_code, 1);
  EXPECT_NE(finish.error.get<std::string>().find("(torchrun's agent) left the job's store"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
