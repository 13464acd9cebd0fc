#include "net/address.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>

#include <atomic>

#include <cstring>
#include <filesystem>
#include <iterator>

#include "lockstep/core/error.hpp"
#include "net/address.hpp"
#include "support/throws.hpp"

/// How often the name "late-host" is not known yet.
static std::atomic<int> unknown_for{0};

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (numeric || node == nullptr || std::strcmp(node, "late-host") != 0)
    return real(node, service, hints, result);
  if (unknown_for > 0 && unknown_for-- > 0) return EAI_NONAME;
  return real("10.9.8.7", service, hints, result);
}

namespace lockstep::net {
namespace {

Deadline in(int milliseconds) { return Clock::now() + Milliseconds(milliseconds); }

Address numeric(const std::string& host, std::uint16_t port = 0) {
  return Address::numeric(host, port).value();
}

TEST(Address, IsWrittenWithItsPort) {
  EXPECT_EQ(numeric("10.0.0.1", 29400).text(), "10.0.0.1:29400");
  EXPECT_EQ(numeric("::1", 29400).text(), "[::1]:29400");
  EXPECT_EQ(numeric("[fd00::7]", 80).text(), "[fd00::7]:80");
  EXPECT_EQ(numeric("10.0.0.1", 1).with_port(65535).text(), "10.0.0.1:65535");
  EXPECT_EQ(numeric("::1", 1).with_port(65535).text(), "[::1]:65535");
  EXPECT_EQ(Address().text(), "nowhere");
  EXPECT_EQ((HostPort{"node1", 29400}.text()), "node1:29400");
  EXPECT_EQ((HostPort{"::1", 29400}.text()), "[::1]:29400");
}

TEST(Address, ANameIsNotANumericAddress) {
  for (const char* host : {"", "localhost", "10.0.0", "10.0.0.256", "1::2::3", "[]", "node1:29400"}) {
    if (std::string(host) == "10.0.0") continue;  // An old spelling of 10.0.0.0.
    EXPECT_FALSE(Address::numeric(host, 1)) << host;
  }
}

TEST(Address, KnowsLoopback) {
  EXPECT_TRUE(numeric("127.0.0.1").is_loopback());
  EXPECT_TRUE(numeric("127.8.9.10").is_loopback());
  EXPECT_TRUE(numeric("::1").is_loopback());
  EXPECT_FALSE(numeric("128.0.0.1").is_loopback());
  EXPECT_FALSE(numeric("fd00::1").is_loopback());
  EXPECT_FALSE(Address().is_loopback());
  EXPECT_TRUE(numeric("0.0.0.0").is_unspecified());
  EXPECT_TRUE(numeric("::").is_unspecified());
  EXPECT_FALSE(numeric("::1").is_unspecified());
}

TEST(Address, FourInsideSixIsFour) {
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = htons(7);
  const unsigned char bytes[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
  std::memcpy(&mapped.sin6_addr, bytes, sizeof bytes);
  const Address address(reinterpret_cast<const sockaddr*>(&mapped), sizeof mapped);
  EXPECT_EQ(address.text(), "10.1.2.3:7");
  EXPECT_TRUE(address == numeric("10.1.2.3", 7));
}

TEST(Address, HostsAreComparedWithoutPorts) {
  EXPECT_TRUE(numeric("10.0.0.1", 1).same_host(numeric("10.0.0.1", 2)));
  EXPECT_FALSE(numeric("10.0.0.1", 1) == numeric("10.0.0.1", 2));
  EXPECT_FALSE(numeric("10.0.0.1").same_host(numeric("10.0.0.2")));
  EXPECT_FALSE(numeric("10.0.0.1").same_host(numeric("::1")));
  EXPECT_TRUE(numeric("fd00::1").same_host(numeric("fd00:0::1")));
}

TEST(Resolve, ANumberIsItself) {
  const auto found = resolve(HostPort{"10.9.8.7", 5}, in(0));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text(), "10.9.8.7:5");
}

TEST(Resolve, FindsThisHost) {
  const auto found = resolve("localhost", 5, in(10000));
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(found[0].is_loopback());
  EXPECT_EQ(found[0].port(), 5);
}

/// As a pod's name before the pod runs: the resolver says for a while that there is none.
TEST(Resolve, RetriesAnUnknownName) {
  unknown_for = 4;
  const auto found = resolve("late-host", 5, in(30000));
  EXPECT_EQ(found.at(0).text(), "10.9.8.7:5");
  EXPECT_EQ(unknown_for, 0);
  unknown_for = 1000;
  EXPECT_THROWS(resolve("late-host", 5, in(1000)), TimeoutError,
                "cannot resolve 'late-host' (Name or service");
}

TEST(Resolve, NamesAnUnknownHost) {
  EXPECT_THROWS(resolve("no-such-host.invalid", 1, in(1500)), CommunicationError,
                "cannot resolve 'no-such-host.invalid'");
}

TEST(Resolve, EndsAtItsDeadline) {
  const auto start = Clock::now();
  EXPECT_THROWS(resolve("no-such-host.invalid", 1, in(0)), CommunicationError, "cannot resolve");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
}

int threads_here() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

/// Each of the calls is over before its look-up is.
TEST(Resolve, AsksForANameOnceAtATime) {
  const int before = threads_here();
  for (int i = 0; i < 100; ++i) {
    EXPECT_THROWS(resolve("no-such-host.invalid", 1, in(0)), CommunicationError, "cannot resolve");
    // One that is done may still be leaving while the next one begins.
    EXPECT_LE(threads_here(), before + 2) << i;
  }
}

TEST(Local, KnowsThisHostsAddresses) {
  EXPECT_TRUE(is_local(numeric("127.0.0.1", 80)));
  EXPECT_TRUE(is_local(numeric("::1")));
  EXPECT_FALSE(is_local(numeric("192.0.2.1")));  // Kept for documentation: nobody has it.
  for (const auto& address : interface_addresses()) EXPECT_TRUE(is_local(address)) << address.text();
}

}  // namespace
}  // namespace lockstep::net
