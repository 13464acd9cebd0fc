#include "comm/transport/fingerprint_exchange.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "comm/errors.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "net/sha256.hpp"
#include "net/socket.hpp"
#include "shm/bootstrap.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::comm {
namespace {

/// A rank's first message on a connection. The nonce is in the job's store, so other processes do not know
/// it.
struct Greeting {
  std::array<char, 32> nonce{};
  std::int32_t round = 0;
};

/// How often a waiting rank tries to read, yielding the CPU in between, before it sleeps: about the time of a
/// wakeup.
constexpr int kSpins = 60;
/// The time between the first and the last byte of a greeting.
constexpr std::chrono::seconds kGreetingTime{1};

std::string without_number(std::string call) {
  const auto mark = call.find('#');
  if (mark == std::string::npos) return call;
  return call.erase(mark, call.find_first_not_of("0123456789", mark + 1) - mark);
}

std::string_view bytes_of(const auto& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

/// Converts errors to those of Transport's libraries: the ranks that caused them are not determined yet.
template <class Body>
void as_a_library(const Body& body) {
  try {
    body();
  } catch (const TimeoutError& error) {
    throw LibraryTimeout(error.what());
  } catch (const CommunicationError& error) {
    throw std::runtime_error(error.what());
  }
}

/// Polls for data, and sleeps eventually.
void receive_spinning(int socket, char* into, std::size_t count, net::Deadline deadline) {
  for (int spins = 0; count > 0 && spins < kSpins;) {
    const ssize_t got = ::recv(socket, into, count, MSG_DONTWAIT);
    if (got > 0) {
      into += got;
      count -= static_cast<std::size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      ++spins;
      ::sched_yield();
    } else {
      break;  // receive_exactly() reports the error.
    }
  }
  if (count > 0) net::receive_exactly(socket, into, count, deadline);
}

/// Where a rank listens, and its nonce: "10.0.0.1 4711 <nonce>" in the job's store.
std::pair<net::Address, Greeting> contact_in(const std::string& text) {
  std::istringstream words(text);
  std::string host, nonce;
  std::uint16_t port = 0;
  words >> host >> port >> nonce;
  const auto address = net::Address::numeric(host, port);
  Greeting greeting;
  if (!address || nonce.size() != greeting.nonce.size())
    throw CommunicationError(
        fmt::format("expected an address, a port and a nonce in the job's store, but found '{}'", text));
  std::ranges::copy(nonce, greeting.nonce.begin());
  return {*address, greeting};
}

}  // namespace

bool FingerprintExchange::CollectiveFingerprint::operator!=(const CollectiveFingerprint& other) const {
  return std::strcmp(call.data(), other.call.data()) != 0 &&
         without_number(call.data()) != without_number(other.call.data());
}

/// Each rank connects to those that it sends to, then accepts the connections of those that send to it.
FingerprintExchange::FingerprintExchange(const Store& store, GroupInfo members, const std::string& address,
                                         const ProcessGroupOptions& options)
    : members_(std::move(members)), timeout_(options.timeout) {
  const auto deadline = net::Clock::now() + options.join_timeout;
  const auto own = net::Address::numeric(address.empty() ? "127.0.0.1" : address, 0);
  if (!own) throw CommunicationError(fmt::format("'{}' is not an address to listen at", address));
  const auto listener = net::listen_at(*own);
  const std::string nonce = format_hex(net::random_bytes(std::tuple_size_v<decltype(Greeting::nonce)> / 2));
  store.set(fmt::to_string(members_.rank),
            fmt::format("{} {} {}", own->host(), net::local_address(listener.get()).port(), nonce));
  for (int distance = 1; distance < members_.size(); distance *= 2) {
    const int next = (members_.rank + distance) % members_.size();
    auto [there, greeting] = contact_in(store.get(fmt::to_string(next), options.join_timeout));
    greeting.round = static_cast<std::int32_t>(rounds_.size());
    rounds_.push_back({net::connect_to({there}, deadline), {}});
    net::send_all(rounds_.back().to.get(), bytes_of(greeting), deadline);
  }
  accept_all(listener.get(), nonce, deadline);
}

/// Any process may connect and send something else, or nothing; this does not delay the ranks.
void FingerprintExchange::accept_all(int listener, const std::string& nonce, net::Deadline deadline) {
  std::vector<net::FileDescriptor> sockets;  // Not greeted yet.
  for (std::size_t missing = rounds_.size(); missing > 0;) {
    const auto ready = shm::wait_for_any(listener, sockets, deadline);
    if (ready.empty())
      throw TimeoutError(fmt::format("{} of {} ranks that verify calls with this one did not connect",
                                     missing, rounds_.size()));
    for (const std::size_t number : ready) {
      if (number < sockets.size() && take_greeting(std::move(sockets[number]), nonce, deadline)) --missing;
    }
    std::erase_if(sockets, [](const net::FileDescriptor& socket) { return !socket; });
    if (auto accepted = net::accept_from(listener)) sockets.push_back(std::move(accepted->socket));
  }
}

/// Whether one of the ranks has sent it, which the round then receives from.
bool FingerprintExchange::take_greeting(net::FileDescriptor socket, const std::string& nonce,
                                        net::Deadline deadline) {
  Greeting greeting;
  try {
    net::receive_exactly(socket.get(), reinterpret_cast<char*>(&greeting), sizeof greeting,
                         std::min(deadline, net::Clock::now() + kGreetingTime));
  } catch (const CommunicationError&) {
    return false;
  }
  const auto round = static_cast<std::size_t>(greeting.round);
  if (!std::ranges::equal(nonce, greeting.nonce) || round >= rounds_.size() || rounds_[round].from)
    return false;
  rounds_[round].from = std::move(socket);
  return true;
}

void FingerprintExchange::close() noexcept {
  for (const auto& round : rounds_) {
    ::shutdown(round.to.get(), SHUT_RDWR);
    ::shutdown(round.from.get(), SHUT_RDWR);
  }
}

template <class Body>
void FingerprintExchange::guarded(const Body& body) {
  if (broken_) std::rethrow_exception(broken_);
  try {
    body();
  } catch (...) {
    broken_ = std::current_exception();
    throw;
  }
}

net::Deadline FingerprintExchange::deadline_in(Milliseconds timeout) const {
  return net::Clock::now() + (timeout > Milliseconds(0) ? timeout : timeout_);
}

void FingerprintExchange::send(Round& round, net::Deadline deadline) {
  as_a_library([&] { net::send_all(round.to.get(), bytes_of(known_), deadline); });
}

FingerprintExchange::Known FingerprintExchange::merged(const Known& one, const Known& another) {
  const bool in_order = one.first.caller < another.first.caller;
  Known result = in_order ? one : another;
  const Known& behind = in_order ? another : one;
  for (const CollectiveFingerprint* fingerprint : {&behind.first, &behind.other}) {
    if (fingerprint->caller < 0 || !(*fingerprint != result.first)) continue;
    if (result.other.caller < 0 || fingerprint->caller < result.other.caller) result.other = *fingerprint;
  }
  return result;
}

void FingerprintExchange::announce(const std::string& call, Milliseconds timeout) {
  guarded([&] {
    known_ = {};
    known_.first.caller = members_.rank;
    std::memcpy(known_.first.call.data(), call.data(), std::min(call.size(), known_.first.call.size() - 1));
    if (!rounds_.empty()) send(rounds_.front(), deadline_in(timeout));
  });
}

void FingerprintExchange::agree(Milliseconds timeout) {
  guarded([&] {
    const auto deadline = deadline_in(timeout);
    for (auto& round : rounds_) {
      if (&round != &rounds_.front()) send(round, deadline);
      Known received;
      as_a_library([&] {
        receive_spinning(round.from.get(), reinterpret_cast<char*>(&received), sizeof received, deadline);
      });
      known_ = merged(known_, received);
    }
    if (known_.other.caller >= 0) refuse();
  });
}

void FingerprintExchange::refuse() {
  const auto called_by = [&](const CollectiveFingerprint& fingerprint) {
    return shm::Caller{members_.called(fingerprint.caller), fingerprint.call.data()};
  };
  throw CommunicationError(shm::disagreement(members_.who, called_by(known_.first), called_by(known_.other)));
}

}  // namespace lockstep::comm
