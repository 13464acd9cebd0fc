#include "net/handshake.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "net/sha256.hpp"
#include "net/socket.hpp"
#include "net/store/protocol.hpp"

namespace lockstep::net {
namespace {

std::string proof_of(std::string_view side, const Challenges& challenges, std::string_view secret) {
  std::string message(side);
  message += static_cast<char>(challenges.purpose);
  return hmac_sha256(secret, message + challenges.server + challenges.client);
}

/// The client's side of the handshake on one connection.
class ClientHandshake {
 public:
  ClientHandshake(int socket, Purpose purpose, std::string_view secret, Deadline deadline)
      : socket_(socket),
        where_(remote_address(socket).text()),
        purpose_(purpose),
        secret_(secret),
        deadline_(deadline) {}

  PeerKind run() {
    const bool plain = purpose_ == Purpose::store && secret_.empty();
    const std::string sent =
        greeting(plain ? static_cast<std::uint32_t>(getpid()) : handshake_nonce(purpose_));
    send_all(socket_, sent, deadline_);
    const std::string answer = receive(sizeof(std::uint32_t));
    if (sent.ends_with(answer)) return PeerKind::plain_store;
    if (plain) fail_unknown();
    prove(challenges_after(answer));
    return PeerKind::lockstep;
  }

  [[noreturn]] void fail(ControlFailure failure, std::string_view what) const {
    throw ControlError(failure, fmt::format("at {} {}", where_, what));
  }

 private:
  [[noreturn]] void fail_unknown() const {
    fail(ControlFailure::not_lockstep,
         "something listens that is neither a store nor a Lockstep job: another program holds the port. "
         "Choose another one.");
  }

  std::string receive(std::size_t count) const {
    std::string bytes(count, '\0');
    receive_exactly(socket_, bytes.data(), count, deadline_);
    return bytes;
  }

  /// Reads the rest of the server's hello.
  Challenges challenges_after(const std::string& beginning) const {
    if (!kServerMark.starts_with(beginning)) fail_unknown();
    const std::string hello = beginning + receive(kServerHelloBytes - beginning.size());
    if (!hello.starts_with(kServerMark)) fail_unknown();
    const char version = hello[kServerMark.size()];
    if (version == kHandshakeVersion) {
      return {purpose_, hello.substr(kServerMark.size() + 1), random_bytes(kChallengeBytes)};
    }
    fail(ControlFailure::not_lockstep,
         fmt::format("another version of Lockstep listens (handshake {}, ours is {}): use one version on all "
                     "hosts.",
                     static_cast<int>(version), static_cast<int>(kHandshakeVersion)));
  }

  void prove(const Challenges& challenges) const {
    send_all(socket_, challenges.client + challenges.client_proof(secret_), deadline_);
    const char answer = receive(1).front();
    if (answer == kRefused) {
      fail(ControlFailure::wrong_secret,
           fmt::format(
               "another job listens, or a rank of this job with another secret; it refused this one: {}.",
               refusal()));
    }
    if (answer != kAccepted) fail_unknown();
    if (equal_in_constant_time(receive(kProofBytes), challenges.server_proof(secret_))) return;
    fail(ControlFailure::wrong_secret,
         "something listens that claims to be this job and does not know its secret.");
  }

  /// The server's reason, truncated to 200 characters or at the end of the connection.
  std::string refusal() const {
    constexpr std::size_t kLongest = 200;
    std::string line;
    try {
      for (char next = 0; line.size() < kLongest && next != '\n';) {
        next = receive(1).front();
        if (next >= ' ' && next <= '~') line += next;
      }
    } catch (const CommunicationError&) {
      line += " ...";
    }
    return line;
  }

  int socket_;
  /// Stored because a closed connection has no remote address.
  std::string where_;
  Purpose purpose_;
  std::string_view secret_;
  Deadline deadline_;
};

}  // namespace

std::uint32_t handshake_nonce(Purpose purpose) {
  return static_cast<std::uint32_t>(read_number(std::string("LKS") + static_cast<char>(purpose)));
}

std::string Challenges::client_proof(std::string_view secret) const {
  return proof_of("lockstep client 1 ", *this, secret);
}

std::string Challenges::server_proof(std::string_view secret) const {
  return proof_of("lockstep server 1 ", *this, secret);
}

ServerHandshake::Result ServerHandshake::receive(std::string_view& bytes) {
  const bool greeted = !challenges_.server.empty();
  if (!fill(bytes_, bytes, greeted ? kChallengeBytes + kProofBytes : kGreetingBytes)) {
    // Bytes that cannot become a greeting are refused at once.
    return greeted || greeting(0).starts_with(bytes_.substr(0, kGreetingBytes - 4)) ? Result::undecided
                                                                                    : Result::refused;
  }
  return greeted ? take_proof() : take_greeting();
}

ServerHandshake::Result ServerHandshake::take_greeting() {
  const std::string first = std::exchange(bytes_, {});
  const auto nonce =
      static_cast<std::uint32_t>(read_number(std::string_view(first).substr(kGreetingBytes - 4)));
  if (first != greeting(nonce)) return Result::refused;
  for (const Purpose purpose : {Purpose::control, Purpose::store}) {
    if (nonce != handshake_nonce(purpose) || secret_.empty()) continue;
    challenges_ = {purpose, random_bytes(kChallengeBytes), ""};
    answer_ = std::string(kServerMark) + kHandshakeVersion + challenges_.server;
    return Result::undecided;
  }
  answer_ = first.substr(kGreetingBytes - 4);
  return Result::plain;
}

ServerHandshake::Result ServerHandshake::take_proof() {
  challenges_.client = bytes_.substr(0, kChallengeBytes);
  if (!equal_in_constant_time(bytes_.substr(kChallengeBytes), challenges_.client_proof(secret_))) {
    answer_ = std::string(1, kRefused) + "the secret is another one\n";
    return Result::wrong_secret;
  }
  answer_ = kAccepted + challenges_.server_proof(secret_);
  return challenges_.purpose == Purpose::control ? Result::control : Result::store;
}

std::string ServerHandshake::take_answer() { return std::exchange(answer_, {}); }

PeerKind client_handshake(int socket, Purpose purpose, std::string_view secret, Deadline deadline) {
  constexpr std::chrono::seconds kHandshakeTimeout{10};
  ClientHandshake handshake(socket, purpose, secret, std::min(deadline, Clock::now() + kHandshakeTimeout));
  try {
    return handshake.run();
  } catch (const ControlError&) {
    throw;
  } catch (const TimeoutError&) {
    handshake.fail(
        ControlFailure::silent,
        "something listens and does not answer: another program may hold the port, or that process is "
        "stopped.");
  } catch (const CommunicationError& error) {
    handshake.fail(ControlFailure::broken_off,
                   fmt::format("the connection ended before anything was said ({}): another program may hold "
                               "the port, or the store does not allow this host or user.",
                               error.what()));
  }
}

FileDescriptor connect_control(const std::vector<Address>& addresses, std::string_view secret,
                               Deadline deadline) {
  FileDescriptor socket;
  try {
    socket = connect_to(addresses, deadline);
  } catch (const TimeoutError& error) {
    throw ControlError(ControlFailure::nobody_listens, error.what());
  }
  if (client_handshake(socket.get(), Purpose::control, secret, deadline) == PeerKind::lockstep) return socket;
  throw ControlError(
      ControlFailure::plain_store,
      fmt::format("at {} a plain store answers: torchrun, or a job without a secret, has this endpoint. "
                  "Start every node of a job by the same launcher.",
                  remote_address(socket.get()).text()));
}

}  // namespace lockstep::net
