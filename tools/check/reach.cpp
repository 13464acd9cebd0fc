#include "reach.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process_identity.hpp"

namespace check {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kOthersTime{60};
constexpr int kConnectMilliseconds = 5000;

class Socket {
 public:
  explicit Socket(int number) : number_(number) {}
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// Numeric addresses only: nobody is asked for names.
AddressList address_of(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0) list = nullptr;
  return {list, [](addrinfo* entries) {
            if (entries != nullptr) freeaddrinfo(entries);
          }};
}

[[noreturn]] void fail(const std::string& what, const std::string& host) {
  throw lockstep::CommunicationError("cannot " + what + " on " + host + ": " + std::strerror(errno));
}

/// The port of a new listener on this rank's address. Connections are completed by the kernel, nobody accepts
/// them.
int listen_on(const Socket& socket, const addrinfo& address, int backlog, const std::string& host) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (socket.get() < 0 || bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) fail("bind", host);
  if (listen(socket.get(), backlog) != 0) fail("listen", host);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) fail("listen", host);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

/// 0, or the errno of a connection that began and is to be completed.
int completion(int socket) {
  pollfd entry{socket, POLLOUT, 0};
  int ready = 0;
  do {
    ready = poll(&entry, 1, kConnectMilliseconds);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

/// Why no connection can be made; empty: it can.
std::string obstacle(const std::string& host, const std::string& port) {
  const AddressList address = address_of(host, port);
  if (!address) return "that is no address";
  const Socket socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(socket.get(), address->ai_addr, address->ai_addrlen) == 0) return "";
  const int error = errno == EINPROGRESS ? completion(socket.get()) : errno;
  return error == 0 ? "" : std::strerror(error);
}

std::string named(int rank, const json& facts) {
  return "rank " + std::to_string(rank) + " (" + facts.at("name").get<std::string>() + ")";
}

json await(const lockstep::Store& store, const std::string& key, int rank) {
  if (store.wait(key + std::to_string(rank), kOthersTime))
    return json::parse(store.get(key + std::to_string(rank), kOthersTime));
  throw lockstep::TimeoutError("rank " + std::to_string(rank) + " did not say '" + key + "' within 60 s",
                               {rank});
}

std::vector<std::string> failures_of(const lockstep::World& world, const std::vector<json>& ranks) {
  std::vector<std::string> failures;
  for (int rank = 0; rank < world.world_size; ++rank) {
    const json& other = ranks[static_cast<std::size_t>(rank)];
    const std::string host = other.at("host");
    const std::string port = std::to_string(other.at("port").get<int>());
    const std::string why = rank == world.rank ? "" : obstacle(host, port);
    if (why.empty()) continue;
    failures.push_back(named(world.rank, ranks[static_cast<std::size_t>(world.rank)]) + " cannot reach " +
                       named(rank, other) + " at " + host + ":" + port + ": " + why);
  }
  return failures;
}

}  // namespace

std::vector<std::string> unreachable_pairs(const lockstep::World& world, const lockstep::Store& store) {
  const std::string host = store.local_address().empty() ? "127.0.0.1" : store.local_address();
  const AddressList address = address_of(host, "0");
  if (!address) throw lockstep::CommunicationError("this rank's own address '" + host + "' is no address");
  const Socket listener(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int port = listen_on(listener, *address, world.world_size, host);
  const std::string self = std::to_string(world.rank);
  store.set("here/" + self,
            json{{"host", host}, {"port", port}, {"name", lockstep::this_process().host}}.dump());
  std::vector<json> ranks;
  for (int rank = 0; rank < world.world_size; ++rank) ranks.push_back(await(store, "here/", rank));
  store.set("tried/" + self, json(failures_of(world, ranks)).dump());
  std::vector<std::string> all;
  for (int rank = 0; rank < world.world_size; ++rank) {
    for (const auto& line : await(store, "tried/", rank)) all.push_back(line);
  }
  return all;
}

}  // namespace check
