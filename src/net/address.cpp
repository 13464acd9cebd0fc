#include "net/address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "core/runtime/signal_free_thread.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::net {
namespace {

std::string bracketed(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

const sockaddr_in& four(const sockaddr* address) { return *reinterpret_cast<const sockaddr_in*>(address); }
const sockaddr_in6& six(const sockaddr* address) { return *reinterpret_cast<const sockaddr_in6*>(address); }

/// The IPv4 address of an IPv4-mapped IPv6 address.
sockaddr_in unmapped(const sockaddr_in6& address) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = address.sin6_port;
  std::memcpy(&result.sin_addr, address.sin6_addr.s6_addr + 12, sizeof result.sin_addr);
  return result;
}

Address end_of(int socket, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* name = reinterpret_cast<sockaddr*>(&storage);
  return ask(socket, name, &size) == 0 ? Address(name, size) : Address();
}

struct Lookup {
  int failure = 0;
  std::vector<Address> addresses;
};

Lookup look_up(const std::string& host, std::uint16_t port, int flags = 0) {
  addrinfo hints{};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  Lookup result;
  result.failure = getaddrinfo(host.c_str(), fmt::to_string(port).c_str(), &hints, &found);
  if (result.failure != 0) return result;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    result.addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return result;
}

/// The pending lookups: at most one per name, however often it is requested, so that a name server that does
/// not answer costs one thread and not one per try. Threads own their data, so that nobody has to wait for
/// them.
class Lookups {
 public:
  std::shared_future<Lookup> find_or_start(const std::string& host, std::uint16_t port) {
    const Name name{host, port};
    const std::lock_guard lock(mutex_);
    if (const auto pending = pending_.find(name); pending != pending_.end()) return pending->second;
    const auto promise = std::make_shared<std::promise<Lookup>>();
    const std::shared_future<Lookup> result = promise->get_future().share();
    signal_free_thread([this, promise, name] {
      std::packaged_task<Lookup()> task([&name] { return look_up(name.first, name.second); });
      task();
      // Before the answer is there: who has it and asks again starts a new look-up.
      {
        const std::lock_guard end(mutex_);
        pending_.erase(name);
      }
      try {
        promise->set_value(task.get_future().get());
      } catch (...) {
        promise->set_exception(std::current_exception());
      }
    }).detach();
    pending_.emplace(name, result);
    return result;
  }

 private:
  using Name = std::pair<std::string, std::uint16_t>;

  std::mutex mutex_;
  std::map<Name, std::shared_future<Lookup>> pending_;
};

/// Never destroyed: a thread may finish while the process is ending.
Lookups& lookups() {
  static auto& all = *new Lookups();
  return all;
}

Lookup await_lookup(const std::string& host, std::uint16_t port, Deadline deadline) {
  constexpr Milliseconds kSlice{1000};  // The future's clock runs on while this process is paused.
  const auto pending = lookups().find_or_start(host, port);
  while (pending.wait_for(std::min(left_until(deadline), kSlice)) != std::future_status::ready) {
    if (left_until(deadline) > Milliseconds(0)) continue;
    throw TimeoutError(
        fmt::format("cannot resolve '{}': no name server answered in time. Give a numeric address, or see "
                    "/etc/resolv.conf.",
                    host));
  }
  return pending.get();
}

struct Interface {
  Address address;
  bool up = false;
};

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    found.push_back({Address(entry->ifa_addr, size), (entry->ifa_flags & IFF_UP) != 0});
  }
  return found;
}

}  // namespace

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::string HostPort::text() const { return bracketed(without_brackets(host), port); }

Address::Address(const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six(address).sin6_addr)) {
    const sockaddr_in inner = unmapped(six(address));
    std::memcpy(&storage_, &inner, sizeof inner);
    size_ = sizeof inner;
  } else if (address->sa_family == AF_INET || address->sa_family == AF_INET6) {
    std::memcpy(&storage_, address, size);
    size_ = size;
  }
}

std::optional<Address> Address::numeric(const std::string& host, std::uint16_t port) {
  const std::string plain = without_brackets(host);
  if (plain.empty()) return std::nullopt;  // The system would interpret it as this host.
  const Lookup found = look_up(plain, port, AI_NUMERICHOST);
  return found.failure == 0 ? std::optional(found.addresses.front()) : std::nullopt;
}

Address Address::loopback(std::uint16_t port) { return numeric("127.0.0.1", port).value(); }

std::string Address::host() const {
  char text[NI_MAXHOST] = {};
  const bool known =
      size_ > 0 && getnameinfo(data(), size_, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? text : "nowhere";
}

std::string Address::text() const { return size_ == 0 ? host() : bracketed(host(), port()); }

// The port has the same offset in both families.
std::uint16_t Address::port() const { return ntohs(four(data()).sin_port); }

Address Address::with_port(std::uint16_t port) const {
  Address result = *this;
  reinterpret_cast<sockaddr_in*>(&result.storage_)->sin_port = htons(port);
  return result;
}

bool Address::is_loopback() const {
  if (family() == AF_INET) return (ntohl(four(data()).sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six(data()).sin6_addr) != 0;
}

bool Address::is_unspecified() const {
  if (family() == AF_INET) return four(data()).sin_addr.s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six(data()).sin6_addr) != 0;
}

bool Address::same_host(const Address& other) const {
  if (family() != other.family()) return false;
  if (family() == AF_INET) return four(data()).sin_addr.s_addr == four(other.data()).sin_addr.s_addr;
  return family() == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&six(data()).sin6_addr, &six(other.data()).sin6_addr) != 0;
}

bool operator==(const Address& a, const Address& b) { return a.same_host(b) && a.port() == b.port(); }

Address local_address(int socket) { return end_of(socket, getsockname); }
Address remote_address(int socket) { return end_of(socket, getpeername); }

std::vector<Address> resolve(const std::string& host, std::uint16_t port, Deadline deadline) {
  if (const auto numeric = Address::numeric(host, port)) return {*numeric};
  constexpr Milliseconds kFirstPause{200}, kLongestPause{2000};
  for (Milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const Lookup answer = await_lookup(host, port, deadline);
    if (answer.failure == 0) return answer.addresses;
    if (left_until(deadline) <= pause) {
      throw TimeoutError(fmt::format(
          "cannot resolve '{}' ({}): expected the name or the address of a host, known on every host of "
          "the job.",
          host, gai_strerror(answer.failure)));
    }
    std::this_thread::sleep_for(pause);
  }
}

std::vector<Address> resolve(const HostPort& endpoint, Deadline deadline) {
  return resolve(endpoint.host, endpoint.port, deadline);
}

bool is_local(const Address& address) {
  if (address.is_loopback()) return true;
  return std::ranges::any_of(interfaces(),
                             [&](const Interface& each) { return each.address.same_host(address); });
}

std::vector<Address> interface_addresses() {
  std::vector<Address> found;
  for (const auto& each : interfaces()) {
    if (each.up && !each.address.is_loopback()) found.push_back(each.address);
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const Address& each) { return each.family() == AF_INET; });
  return found;
}

}  // namespace lockstep::net
