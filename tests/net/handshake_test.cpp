#include "net/handshake.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "net/handshake.hpp"
#include "net/socket.hpp"
#include "net/store/client.hpp"
#include "net/store/protocol.hpp"
#include "net/store/server.hpp"
#include "support/throws.hpp"

namespace lockstep::net {
namespace {

Deadline in(int milliseconds) { return Clock::now() + Milliseconds(milliseconds); }
Deadline soon() { return in(20000); }

ServerOptions with_secret() { return {.secret = "the job's secret"}; }

AuthenticatedPeer next_peer(Server& server) {
  for (;;) {
    if (!await_ready(server.events_descriptor(), POLLIN, soon())) throw TimeoutError("no peer came");
    ServerEvents events = server.take_events();
    if (!events.peers.empty()) return std::move(events.peers.front());
  }
}

ControlFailure failure_of(const Address& address, const std::string& secret, Deadline deadline) {
  try {
    connect_control({address}, secret, deadline);
  } catch (const ControlError& error) {
    EXPECT_NE(std::string(error.what()).find(address.text()), std::string::npos) << error.what();
    return error.failure();
  }
  throw Error("nothing failed");
}

/// A server that answers its first client with fixed bytes once it has read `after` of them, then closes.
class Answering {
 public:
  Answering(std::size_t after, std::string answer) : listener_(listen_on_loopback(0)) {
    thread_ = std::thread([this, after, answer = std::move(answer)] {
      await_ready(listener_.get(), POLLIN, soon());
      const auto client = accept_from(listener_.get());
      std::string bytes(after, '\0');
      receive_exactly(client->socket.get(), bytes.data(), after, soon());
      send_all(client->socket.get(), answer, soon());
    });
  }
  ~Answering() { thread_.join(); }
  Address address() const { return local_address(listener_.get()); }

 private:
  FileDescriptor listener_;
  std::thread thread_;
};

TEST(Handshake, BothSidesProveAndTheOwnerGetsTheSocket) {
  Server server(listen_on_loopback(0), with_secret());
  const FileDescriptor socket = connect_control({server.address()}, "the job's secret", soon());
  AuthenticatedPeer peer = next_peer(server);
  EXPECT_TRUE(peer.address == local_address(socket.get()));
  EXPECT_EQ(peer.bytes_read_ahead, "");
  send_all(socket.get(), "ping", soon());
  char bytes[4];
  receive_exactly(peer.socket.get(), bytes, 4, soon());
  EXPECT_EQ(std::string(bytes, 4), "ping");
  EXPECT_EQ(server.counts().open, 0U);
  EXPECT_EQ(server.counts().turned_away, 0U);
}

TEST(Handshake, AStoreClientProvesToo) {
  Server server(listen_on_loopback(0), {.secret = "s", .plain_clients = false});
  StoreClient client({server.address()}, {.secret = "s", .plain_server = false}, soon());
  EXPECT_TRUE(client.proven());
  client.set("k", "v", soon());
  EXPECT_EQ(client.get("k", soon()), "v");
  EXPECT_THROWS(StoreClient({server.address()}, {}, soon()), ControlError, "does not allow");
  EXPECT_THROWS(StoreClient({server.address()}, {.secret = "t"}, soon()), ControlError, "another job");
}

TEST(Handshake, AnotherSecretIsRefused) {
  Server server(listen_on_loopback(0), with_secret());
  EXPECT_EQ(failure_of(server.address(), "another secret", soon()), ControlFailure::wrong_secret);
  EXPECT_TRUE(server.take_events().peers.empty());
}

TEST(Handshake, AServerWithoutASecretIsAPlainStore) {
  Server server(listen_on_loopback(0));
  EXPECT_EQ(failure_of(server.address(), "secret", soon()), ControlFailure::plain_store);
  StoreClient client({server.address()}, {.secret = "secret"}, soon());
  EXPECT_FALSE(client.proven());
  client.ping(soon());
  EXPECT_THROWS(StoreClient({server.address()}, {.secret = "secret", .plain_server = false}, soon()),
                ControlError, "does not know the job's secret");
}

TEST(Handshake, ClosedPortAndSilenceAreToldApart) {
  const FileDescriptor listener = listen_on_loopback(0);
  EXPECT_EQ(failure_of(Address::loopback(free_port()), "s", in(50)), ControlFailure::nobody_listens);
  EXPECT_EQ(failure_of(local_address(listener.get()), "s", in(100)), ControlFailure::silent);
}

TEST(Handshake, OtherProgramsAreToldApart) {
  const Answering web(kGreetingBytes, "HTTP/1.1 400 Bad Request\r\n\r\n"), closing(0, "");
  EXPECT_EQ(failure_of(web.address(), "s", soon()), ControlFailure::not_lockstep);
  EXPECT_EQ(failure_of(closing.address(), "s", soon()), ControlFailure::broken_off);
}

TEST(Handshake, AnotherVersionIsNamed) {
  const Answering newer(kGreetingBytes, std::string(kServerMark) + '\2' + std::string(kChallengeBytes, 'x'));
  EXPECT_THROWS(connect_control({newer.address()}, "s", soon()), ControlError, "handshake 2, ours is 1");
}

TEST(Handshake, ServerWithoutTheSecretIsDetected) {
  const std::string hello = std::string(kServerMark) + kHandshakeVersion + std::string(kChallengeBytes, 'x');
  const Answering liar(kGreetingBytes, hello + kAccepted + std::string(kProofBytes, 'y'));
  EXPECT_EQ(failure_of(liar.address(), "s", soon()), ControlFailure::wrong_secret);
}

TEST(Handshake, ProofIsBoundToSidePurposeAndChallenges) {
  const Challenges control{Purpose::control, std::string(32, 'a'), std::string(32, 'b')};
  Challenges store = control, other = control;
  store.purpose = Purpose::store;
  other.server[0] = 'x';
  EXPECT_NE(control.client_proof("s"), control.server_proof("s"));
  EXPECT_NE(control.client_proof("s"), store.client_proof("s"));
  EXPECT_NE(control.client_proof("s"), other.client_proof("s"));
  EXPECT_NE(control.client_proof("s"), control.client_proof("t"));
  EXPECT_EQ(control.client_proof("s"), Challenges(control).client_proof("s"));
}

TEST(ServerHandshake, TakesItsBytesOneByOne) {
  const std::string secret = "s";
  ServerHandshake handshake(secret);
  const auto receive = [&](const std::string& bytes) {
    auto result = ServerHandshake::Result::undecided;
    for (const char& byte : bytes) {
      EXPECT_EQ(result, ServerHandshake::Result::undecided);
      std::string_view view(&byte, 1);
      result = handshake.receive(view);
      EXPECT_TRUE(view.empty());
    }
    return result;
  };
  EXPECT_EQ(receive(greeting(handshake_nonce(Purpose::control))), ServerHandshake::Result::undecided);
  const std::string hello = handshake.take_answer();
  ASSERT_EQ(hello.size(), kServerHelloBytes);
  const Challenges challenges{Purpose::control, hello.substr(9), std::string(32, 'c')};
  EXPECT_EQ(receive(challenges.client + challenges.client_proof(secret)), ServerHandshake::Result::control);
  EXPECT_EQ(handshake.take_answer(), kAccepted + challenges.server_proof(secret));
}

TEST(ServerHandshake, RefusesAtTheFirstWrongByte) {
  for (const std::string bytes : {"G", "GET / HTTP/1.0", "\x16\x03\x01", "LOCKSTEP"}) {
    const std::string secret;
    ServerHandshake handshake(secret);
    std::string_view view = bytes;
    EXPECT_EQ(handshake.receive(view), ServerHandshake::Result::refused) << bytes;
    EXPECT_EQ(handshake.take_answer(), "");
  }
}

TEST(ServerHandshake, KeepsBytesAfterTheGreeting) {
  const std::string secret;
  ServerHandshake handshake(secret);
  const std::string bytes = greeting(0x64636261) + "rest";
  std::string_view view = bytes;
  EXPECT_EQ(handshake.receive(view), ServerHandshake::Result::plain);
  EXPECT_EQ(view, "rest");
  EXPECT_EQ(handshake.take_answer(), "abcd");
}

}  // namespace
}  // namespace lockstep::net
