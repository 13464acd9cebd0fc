#include "net/socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "lockstep/core/error.hpp"
#include "net/socket_owner.hpp"
#include "support/throws.hpp"

namespace lockstep::net {
namespace {

Deadline in(int milliseconds) { return Clock::now() + Milliseconds(milliseconds); }

int option(int socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(socket, level, name, &value, &size), 0);
  return value;
}

Accepted accepted(int listener) {
  EXPECT_TRUE(await_ready(listener, POLLIN, in(20000)));
  return accept_from(listener).value();
}

TEST(Socket, ConnectsAndTalks) {
  const FileDescriptor listener = listen_on_loopback(0);
  const Address address = local_address(listener.get());
  EXPECT_TRUE(address.is_loopback());
  const FileDescriptor here = connect_to({address}, in(20000));
  const Accepted there = accepted(listener.get());
  EXPECT_TRUE(there.address == local_address(here.get()));
  EXPECT_TRUE(remote_address(here.get()) == address);
  send_all(here.get(), "hello", in(20000));
  char bytes[5];
  receive_exactly(there.socket.get(), bytes, sizeof bytes, in(20000));
  EXPECT_EQ(std::string(bytes, 5), "hello");
}

TEST(Socket, HasTheOptionsThatFindADeadHost) {
  const FileDescriptor listener = listen_on_loopback(0);
  const FileDescriptor here = connect_to({local_address(listener.get())}, in(20000));
  const Accepted there = accepted(listener.get());
  for (const int socket : {here.get(), there.socket.get()}) {
    EXPECT_NE(option(socket, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_NE(option(socket, SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 30000);
    EXPECT_NE(fcntl(socket, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(socket, F_GETFL) & O_NONBLOCK, 0);
  }
  EXPECT_NE(fcntl(listener.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Socket, EverywhereTakesBothFamilies) {
  const FileDescriptor listener = listen_everywhere(0);
  const std::uint16_t port = local_address(listener.get()).port();
  connect_to({Address::loopback(port)}, in(20000));
  EXPECT_TRUE(accepted(listener.get()).address.is_loopback());
  if (local_address(listener.get()).family() != AF_INET6) GTEST_SKIP() << "this host has no IPv6";
  connect_to({*Address::numeric("::1", port)}, in(20000));
  EXPECT_EQ(accepted(listener.get()).address.host(), "::1");
}

TEST(Socket, APortInUseNamesItsHolder) {
  const FileDescriptor listener = listen_on_loopback(0);
  const std::uint16_t port = local_address(listener.get()).port();
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  const std::string self = "process " + std::to_string(getpid()) + " (" + name + ")";
  EXPECT_EQ(port_holder(port), self);
  EXPECT_THROWS(listen_on_loopback(port), CommunicationError, "127.0.0.1:" + std::to_string(port), "in use",
                self);
  EXPECT_THROWS(listen_everywhere(port), CommunicationError, self);
  EXPECT_EQ(port_holder(free_port()), "");
}

TEST(Socket, AnotherHostsAddressIsNamed) {
  EXPECT_THROWS(listen_at(*Address::numeric("192.0.2.1", 0)), CommunicationError, "192.0.2.1:0",
                "not an address of this host");
}

TEST(Connect, WaitsForAListener) {
  const std::uint16_t port = free_port();
  std::thread late([port] {
    std::this_thread::sleep_for(Milliseconds(100));
    const FileDescriptor listener = listen_on_loopback(port);
    accepted(listener.get());
  });
  EXPECT_TRUE(connect_to({Address::loopback(port)}, in(20000)));
  late.join();
}

TEST(Connect, ReportsTheResultOfEachAddress) {
  const std::uint16_t port = free_port();
  const Address four = Address::loopback(port), six = *Address::numeric("::1", port);
  EXPECT_THROWS(connect_to({four, six}, in(50)), TimeoutError, four.text() + ": refused", six.text());
  EXPECT_THROWS(connect_to({}, in(50)), UsageError, "no address");
}

TEST(Connect, SilentAddressDoesNotDelayTheOthers) {
  // A listener whose backlog is full answers nobody, as a firewall does not.
  const FileDescriptor full(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address loopback = Address::loopback(0);
  ASSERT_EQ(bind(full.get(), loopback.data(), loopback.size()), 0);
  ASSERT_EQ(listen(full.get(), 0), 0);
  const Address silent = local_address(full.get());
  const FileDescriptor taken = connect_to({silent}, in(20000));
  const FileDescriptor listener = listen_on_loopback(0);
  const Address open = local_address(listener.get());
  const auto start = Clock::now();
  const FileDescriptor connected = connect_to({silent, open}, in(20000));
  EXPECT_TRUE(remote_address(connected.get()) == open);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_THROWS(connect_to({silent}, in(100)), TimeoutError, silent.text() + ": no answer");
}

TEST(Receive, EndsAtItsDeadlineAndAtTheEnd) {
  const FileDescriptor listener = listen_on_loopback(0);
  const FileDescriptor here = connect_to({local_address(listener.get())}, in(20000));
  char byte;
  EXPECT_THROWS(receive_exactly(here.get(), &byte, 1, in(30)), TimeoutError, "no answer in time");
  accepted(listener.get());
  EXPECT_THROWS(receive_exactly(here.get(), &byte, 1, in(20000)), CommunicationError, "closed");
}

TEST(Send, EndsAtItsDeadline) {
  const FileDescriptor listener = listen_on_loopback(0);
  const FileDescriptor here = connect_to({local_address(listener.get())}, in(20000));
  EXPECT_THROWS(send_all(here.get(), std::string(64 << 20, 'x'), in(100)), TimeoutError, "send");
}

}  // namespace
}  // namespace lockstep::net
