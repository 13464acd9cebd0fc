#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <thread>

#include "lockstep/core/error.hpp"
#include "net/socket.hpp"
#include "net/store/client.hpp"
#include "net/store/protocol.hpp"
#include "support/throws.hpp"

namespace lockstep::net {
namespace {

Deadline in(int milliseconds) { return Clock::now() + Milliseconds(milliseconds); }
Deadline soon() { return in(20000); }

std::string receive(int socket, std::size_t count) {
  std::string bytes(count, '\0');
  receive_exactly(socket, bytes.data(), count, soon());
  return bytes;
}

/// A server for one client, which does with it what the test says.
class Hostile {
 public:
  explicit Hostile(std::function<void(int socket)> behaviour) : listener_(listen_on_loopback(0)) {
    thread_ = std::thread([this, behaviour = std::move(behaviour)] {
      await_ready(listener_.get(), POLLIN, soon());
      const auto client = accept_from(listener_.get());
      try {
        behaviour(client->socket.get());
      } catch (const CommunicationError&) {
        // The client left.
      }
    });
  }
  ~Hostile() { thread_.join(); }
  StoreClient connect(Deadline deadline) const {
    return StoreClient({local_address(listener_.get())}, {}, deadline);
  }

 private:
  FileDescriptor listener_;
  std::thread thread_;
};

void greet(int socket) { send_all(socket, receive(socket, kGreetingBytes).substr(6), soon()); }

/// Until the client closes.
void stay(int socket) {
  char byte;
  while (receive_some(socket, &byte, 1, soon()) > 0) {
  }
}

/// Greets, answers the first request with these bytes, and stays.
Hostile answering(std::string bytes) {
  return Hostile([bytes = std::move(bytes)](int socket) {
    greet(socket);
    receive(socket, 1);
    send_all(socket, bytes, soon());
    stay(socket);
  });
}

TEST(HostileServer, SilenceEndsAtTheDeadline) {
  const Hostile server(stay);
  EXPECT_THROWS(server.connect(in(100)), CommunicationError, "does not answer");
}

TEST(HostileServer, AnotherProgramIsNamed) {
  const Hostile server([](int socket) { send_all(socket, "HTTP/1.1 400 Bad Request\r\n\r\n", soon()); });
  EXPECT_THROWS(server.connect(soon()), CommunicationError, "neither a store nor");
}

TEST(HostileServer, ClosingIsAnError) {
  const Hostile at_once([](int) {}), after_greeting(greet);
  EXPECT_THROWS(at_once.connect(soon()), CommunicationError, "connection");
  StoreClient client = after_greeting.connect(soon());
  EXPECT_THROW(client.add("n", 1, soon()), CommunicationError);
  EXPECT_THROWS(client.add("n", 1, soon()), CommunicationError, "lost earlier");
}

TEST(HostileServer, MissingAnswerEndsAtTheDeadline) {
  const Hostile server = answering("\1\0\0"), silent = answering("");
  StoreClient client = server.connect(soon()), other = silent.connect(soon());
  EXPECT_THROW(client.add("n", 1, in(100)), TimeoutError);
  EXPECT_THROW(client.add("n", 1, soon()), CommunicationError);
  const auto start = Clock::now();
  EXPECT_THROW(other.contains({"k"}, in(100)), TimeoutError);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST(HostileServer, UncancelledWaitEndsAtTheDeadline) {
  const Hostile server = answering("");
  StoreClient client = server.connect(soon());
  const auto start = Clock::now();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(client.wait({"k"}, in(50)));
  EXPECT_THROW(client.contains({"k"}, in(50)), TimeoutError);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(15));
}

long peak_kibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(HostileServer, FalseLengthCostsNoMemory) {
  for (const std::uint64_t length : {std::uint64_t{1} << 30, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    const Hostile server = answering(wire_number(length) + std::string(1000, 'x'));
    StoreClient client = server.connect(soon());
    const long before = peak_kibibytes();
    EXPECT_THROW(client.compare_set("k", "", "v", in(100)), CommunicationError);
    EXPECT_LT(peak_kibibytes() - before, 8 * 1024);
  }
}

TEST(HostileServer, FalseCountCostsNoMemory) {
  const Hostile server = answering(wire_number(1 << 24) + wire_number(0));
  StoreClient client = server.connect(soon());
  EXPECT_THROW(client.keys(in(100)), TimeoutError);
}

TEST(ReplyReader, RefusesInvalidReplies) {
  const auto reader_of = [](const std::string& bytes) {
    return ReplyReader([bytes, at = std::size_t{0}](char* into, std::size_t count) mutable {
      if (count > bytes.size() - at) throw CommunicationError("the end");
      bytes.copy(into, count, at);
      at += count;
    });
  };
  EXPECT_EQ(reader_of(wire_number(3) + "abc").text(), "abc");
  EXPECT_EQ(reader_of(wire_number(2) + wire_number(0) + wire_number(1) + "x").texts(),
            (std::vector<std::string>{"", "x"}));
  EXPECT_EQ(reader_of(wire_number(static_cast<std::uint64_t>(-5))).number(), -5);
  EXPECT_THROWS(reader_of(wire_number((1 << 30) + 1)).text(), CommunicationError, "that is not a store");
  EXPECT_THROWS(reader_of(wire_number((1 << 24) + 1)).texts(), CommunicationError, "that is not a store");
  EXPECT_THROWS(reader_of(wire_number(1 << 30)).text(), CommunicationError, "the end");
  EXPECT_THROWS(reader_of("").byte(), CommunicationError, "the end");
}

}  // namespace
}  // namespace lockstep::net
