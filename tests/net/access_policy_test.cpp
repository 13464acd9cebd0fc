#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "lockstep/core/error.hpp"
#include "net/handshake.hpp"
#include "net/socket.hpp"
#include "net/socket_owner.hpp"
#include "net/store/client.hpp"
#include "net/store/server.hpp"
#include "support/throws.hpp"

namespace lockstep::net {
namespace {

Deadline in(int milliseconds) { return Clock::now() + Milliseconds(milliseconds); }
Deadline soon() { return in(20000); }

/// Runs `body` in a child that is the user "nobody"; what it returns.
int as_nobody(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(setgid(65534) == 0 && setuid(65534) == 0 ? body() : 99);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

struct Pair {
  FileDescriptor listener;
  FileDescriptor client;
  Accepted accepted;

  explicit Pair(FileDescriptor listening = listen_on_loopback(0)) : listener(std::move(listening)) {
    client = connect_to({Address::loopback(local_address(listener.get()).port())}, soon());
    await_ready(listener.get(), POLLIN, soon());
    accepted = accept_from(listener.get()).value();
  }
  Address theirs() const { return local_address(client.get()); }
  Address ours() const { return remote_address(client.get()); }
};

TEST(Owner, OfAnOpenSocketOfOursIsUs) {
  const Pair pair;
  EXPECT_TRUE(verify_peer_uid(pair.theirs(), pair.ours()));
  EXPECT_EQ(owner_by_proc(pair.theirs(), pair.ours()), geteuid());
  EXPECT_FALSE(verify_peer_uid(pair.theirs().with_port(1), pair.ours()));
  EXPECT_FALSE(verify_peer_uid(pair.theirs(), pair.ours().with_port(1)));
  EXPECT_FALSE(verify_peer_uid(pair.theirs(), *Address::numeric("::1", 1)));
}

TEST(Owner, IsFoundBehindASocketOfBothFamilies) {
  const Pair pair(listen_everywhere(0));
  EXPECT_TRUE(verify_peer_uid(pair.accepted.address, local_address(pair.accepted.socket.get())));
  EXPECT_EQ(owner_by_proc(pair.accepted.address, pair.ours()), geteuid());
}

TEST(Owner, OfASocketOfSixIsFound) {
  const FileDescriptor listener = listen_everywhere(0);
  if (local_address(listener.get()).family() != AF_INET6) GTEST_SKIP() << "this host has no IPv6";
  const Address target = *Address::numeric("::1", local_address(listener.get()).port());
  const FileDescriptor client = connect_to({target}, soon());
  EXPECT_TRUE(verify_peer_uid(local_address(client.get()), target));
  EXPECT_EQ(owner_by_proc(local_address(client.get()), target), geteuid());
}

// The system shows a socket without a process as root's, while what it sent is still there to be read.
TEST(Owner, AClosedSocketHasNone) {
  Pair pair;
  const Address theirs = pair.theirs(), ours = pair.ours();
  pair.client.reset();
  EXPECT_FALSE(verify_peer_uid(theirs, ours));
  EXPECT_EQ(owner_by_proc(theirs, ours), std::nullopt);
}

TEST(Owner, AnotherUsersSocketIsNotOurs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Pair pair;
  const int port = pair.ours().port();
  const FileDescriptor& listener = pair.listener;
  std::thread asking([&] {
    await_ready(listener.get(), POLLIN, soon());
    const auto client = accept_from(listener.get());
    const bool ours = verify_peer_uid(client->address, local_address(client->socket.get()));
    const bool by_proc = owner_by_proc(client->address, pair.ours()) == uid_t{65534};
    send_all(client->socket.get(), ours ? "y" : by_proc ? "n" : "?", soon());
  });
  EXPECT_EQ(as_nobody([port] {
              const FileDescriptor client =
                  connect_to({Address::loopback(static_cast<std::uint16_t>(port))}, soon());
              char answer = 0;
              receive_exactly(client.get(), &answer, 1, soon());
              return answer == 'n';
            }),
            1);
  asking.join();
}

TEST(AccessPolicy, AnotherUserOfThisHostIsNotServed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Server server(listen_on_loopback(0), {.secret = "s"});
  server.allow(server.address());
  const Address address = server.address();
  const auto refused = [address](const StoreClientOptions& options) {
    try {
      StoreClient({address}, options, soon()).set("k", "v", soon());
      return false;
    } catch (const CommunicationError&) {
      return true;
    }
  };
  EXPECT_EQ(as_nobody([&] { return refused({}); }), 1);
  EXPECT_EQ(as_nobody([&] { return refused({.secret = "guess"}); }), 1);
  EXPECT_FALSE(server.get("k"));
  // One of our own is.
  EXPECT_FALSE(refused({}));
}

TEST(AccessPolicy, OwnersCallsDoNotWaitForTheKernelsAnswer) {
  std::promise<void> asked, answer;
  ServerOptions options{.secret = "s", .handshake_time = Milliseconds(60000)};
  options.is_our_user = [&](const Address&, const Address&) {
    asked.set_value();
    answer.get_future().wait();
    return true;
  };
  Server server(listen_on_loopback(0), options);
  auto client = std::async(std::launch::async, [&] {
    StoreClient store({server.address()}, {}, soon());
    store.set("client", "v", soon());
    store.ping(soon());
  });
  asked.get_future().wait();
  server.set("owner", "v");
  EXPECT_TRUE(server.get("owner"));
  EXPECT_FALSE(server.get("client"));
  answer.set_value();
  client.get();
  EXPECT_TRUE(server.get("client"));
}

TEST(AccessPolicy, OwnerIsToldOfRefusedClients) {
  Server server(listen_on_loopback(0), {.secret = "s", .is_local = [](const Address&) { return false; }});
  EXPECT_THROW(connect_control({server.address()}, "guess", soon()), ControlError);
  EXPECT_THROW(StoreClient({server.address()}, {}, soon()), CommunicationError);
  std::vector<RefusedClient> refused;
  while (refused.size() < 2) {
    ASSERT_TRUE(await_ready(server.events_descriptor(), POLLIN, soon()));
    for (const auto& client : server.take_events().refused_clients) refused.push_back(client);
  }
  EXPECT_TRUE(refused[0].proved_wrong_secret);
  EXPECT_FALSE(refused[1].proved_wrong_secret);
  EXPECT_TRUE(refused[0].address.is_loopback());
}

/// Takes every client for one of another host.
ServerOptions far(bool verify_peer_uid = true) {
  return {.secret = "s",
          .verify_peer_uid = verify_peer_uid,
          .handshake_time = Milliseconds(20000),
          .is_local = [](const Address&) { return false; }};
}

/// Answers the first PeerUidRequest, and returns it.
PeerUidRequest answer_one(Server& server, bool verified) {
  for (;;) {
    if (!await_ready(server.events_descriptor(), POLLIN, soon()))
      throw TimeoutError("no PeerUidRequest came");
    const ServerEvents events = server.take_events();
    if (events.peer_uid_requests.empty()) continue;
    server.answer(events.peer_uid_requests[0].id, verified);
    return events.peer_uid_requests[0];
  }
}

TEST(PeerUid, ClientOfAHostThatIsNotAllowedIsRefused) {
  Server server(listen_on_loopback(0), far());
  EXPECT_THROW(StoreClient({server.address()}, {}, soon()), CommunicationError);
  server.allow(Address::loopback(0));
  server.allow(Address::loopback(0));
  server.forget(Address::loopback(0));
  server.forget(Address::loopback(0));
  server.forget(Address::loopback(0));
  EXPECT_THROW(StoreClient({server.address()}, {}, soon()), CommunicationError);
  EXPECT_EQ(server.counts().turned_away, 2U);
}

TEST(PeerUid, IsNotNeededIfEveryHostIsServed) {
  ServerOptions options = far(false);
  options.every_host = true;
  Server server(listen_on_loopback(0), options);
  StoreClient({server.address()}, {}, soon()).ping(soon());
}

TEST(PeerUid, IsRequestedForEveryHostIfTheOwnerVerifies) {
  ServerOptions options = far();
  options.every_host = true;
  Server server(listen_on_loopback(0), options);
  const FileDescriptor client = connect_to({server.address()}, soon());
  send_all(client.get(), greeting(1), soon());
  ASSERT_TRUE(await_ready(server.events_descriptor(), POLLIN, soon()));
  EXPECT_EQ(server.take_events().peer_uid_requests.size(), 1U);
}

TEST(PeerUid, AProvenClientNeedsNone) {
  Server server(listen_on_loopback(0), far());
  StoreClient client({server.address()}, {.secret = "s"}, soon());
  client.set("k", "v", soon());
}

TEST(PeerUid, ClientIsServedIfItsHostVerifiesTheUser) {
  Server server(listen_on_loopback(0), far());
  server.allow(Address::loopback(0));
  std::thread client([&] {
    StoreClient store({server.address()}, {}, soon());
    store.set("k", "v", soon());
    EXPECT_EQ(store.get("k", soon()), "v");
  });
  const PeerUidRequest request = answer_one(server, true);
  EXPECT_TRUE(verify_peer_uid(request.peer, request.local) || server.get("k"));
  client.join();
  EXPECT_EQ(server.get("k"), "v");
}

TEST(PeerUid, ClientIsRefusedIfItsHostDoesNot) {
  Server server(listen_on_loopback(0), far());
  server.allow(Address::loopback(0));
  std::thread client([&] { EXPECT_THROW(StoreClient({server.address()}, {}, soon()), CommunicationError); });
  const PeerUidRequest request = answer_one(server, false);
  client.join();
  server.answer(request.id, true);
  server.answer(12345, true);
}

TEST(PeerUid, NothingIsExecutedBeforeTheAnswer) {
  Server server(listen_on_loopback(0), far());
  server.allow(Address::loopback(0));
  const FileDescriptor client = connect_to({server.address()}, soon());
  send_all(client.get(), greeting(1) + Writer().type(QueryType::set).text("/k").text("v").bytes(), soon());
  ASSERT_TRUE(await_ready(server.events_descriptor(), POLLIN, soon()));
  const auto requests = server.take_events().peer_uid_requests;
  ASSERT_EQ(requests.size(), 1U);
  std::this_thread::sleep_for(Milliseconds(50));
  EXPECT_FALSE(server.get("k"));
  server.answer(requests[0].id, true);
  char nonce[4];
  receive_exactly(client.get(), nonce, sizeof nonce, soon());
  for (int i = 0; i < 4000 && !server.get("k"); ++i) std::this_thread::sleep_for(Milliseconds(5));
  EXPECT_EQ(server.get("k"), "v");
}

TEST(PeerUid, ClosedClientsAreNotAskedAbout) {
  Server server(listen_on_loopback(0), far());
  server.allow(Address::loopback(0));
  for (int i = 0; i < 20; ++i) {
    const FileDescriptor client = connect_to({server.address()}, soon());
    send_all(client.get(), greeting(1), soon());
    ASSERT_TRUE(await_ready(server.events_descriptor(), POLLIN, soon()));
    // Closing with an option that leaves nothing to wait for, as a crash does.
    const linger at_once{1, 0};
    setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  for (int i = 0; i < 4000 && server.counts().open > 0; ++i) std::this_thread::sleep_for(Milliseconds(5));
  EXPECT_TRUE(server.take_events().peer_uid_requests.empty());
}

TEST(PeerUid, ClientIsRefusedIfTheOwnerDoesNotAnswer) {
  ServerOptions options = far();
  options.handshake_time = Milliseconds(100);
  Server server(listen_on_loopback(0), options);
  server.allow(Address::loopback(0));
  EXPECT_THROW(StoreClient({server.address()}, {}, soon()), CommunicationError);
}

TEST(PeerUid, IsSkippedIfNoAgentCanAnswer) {
  Server server(listen_on_loopback(0), far(false));
  server.allow(Address::loopback(0));
  StoreClient client({server.address()}, {}, soon());
  client.set("k", "v", soon());
  client.ping(soon());
  EXPECT_EQ(server.get("k"), "v");
}

}  // namespace
}  // namespace lockstep::net
