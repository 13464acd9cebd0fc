#include "net/resolve.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "lockstep/core/error.hpp"
#include "net/signal_free_thread.hpp"

namespace lockstep::net {
namespace {

struct Lookup {
  int failure = 0;
  std::vector<Address> addresses;
};

Lookup look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  Lookup result;
  result.failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result.failure != 0) return result;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    result.addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return result;
}

/// The look-ups under way: one for a name at a time, whoever asks how often, so that a name server that does
/// not answer costs one thread and not one for each try. Threads own what they need, so that nobody has to
/// wait for them.
class Lookups {
 public:
  std::shared_future<Lookup> find_or_start(const std::string& host, std::uint16_t port) {
    const Name name{host, port};
    const std::lock_guard lock(mutex_);
    if (const auto pending = pending_.find(name); pending != pending_.end()) return pending->second;
    auto task = std::make_shared<std::packaged_task<Lookup()>>([host, port] { return look_up(host, port); });
    const auto result = task->get_future().share();
    signal_free_thread([this, task, name] {
      (*task)();
      const std::lock_guard end(mutex_);
      pending_.erase(name);
    }).detach();
    pending_.emplace(name, result);
    return result;
  }

 private:
  using Name = std::pair<std::string, std::uint16_t>;

  std::mutex mutex_;
  std::map<Name, std::shared_future<Lookup>> pending_;
};

/// Never destroyed: a thread may come back when the process is ending.
Lookups& lookups() {
  static auto& all = *new Lookups();
  return all;
}

[[noreturn]] void fail(const std::string& host, int failure) {
  throw CommunicationError("cannot resolve '" + host + "' (" + gai_strerror(failure) +
                           "): expected the name or the address of a host, known on every host of the job.");
}

[[noreturn]] void fail_late(const std::string& host) {
  throw TimeoutError("cannot resolve '" + host +
                     "': no name server answered in time. Give a numeric address, or see /etc/resolv.conf.");
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces interfaces() {
  ifaddrs* list = nullptr;
  return {getifaddrs(&list) == 0 ? list : nullptr, &freeifaddrs};
}

Address address_of(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr) return {};
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return {};
  return {entry.ifa_addr,
          static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6))};
}

}  // namespace

std::vector<Address> resolve(const std::string& host, std::uint16_t port, Deadline deadline) {
  if (const auto numeric = Address::numeric(host, port)) return {*numeric};
  constexpr Milliseconds kPause{200};
  for (;;) {
    const auto pending = lookups().find_or_start(host, port);
    if (pending.wait_until(deadline) != std::future_status::ready) fail_late(host);
    const Lookup answer = pending.get();
    if (answer.failure == 0) return answer.addresses;
    if (answer.failure != EAI_AGAIN || Clock::now() + kPause >= deadline) fail(host, answer.failure);
    std::this_thread::sleep_for(kPause);
  }
}

std::vector<Address> resolve(const HostPort& endpoint, Deadline deadline) {
  return resolve(endpoint.host, endpoint.port, deadline);
}

bool is_local(const Address& address) {
  if (address.is_loopback()) return true;
  const auto list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (address_of(*entry).same_host(address)) return true;
  }
  return false;
}

std::vector<Address> interface_addresses() {
  std::vector<Address> found;
  const auto list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const Address address = address_of(*entry);
    if (address.size() > 0 && !address.is_loopback() && (entry->ifa_flags & IFF_UP) != 0)
      found.push_back(address);
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const Address& each) { return each.family() == AF_INET; });
  return found;
}

}  // namespace lockstep::net
