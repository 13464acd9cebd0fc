#include "net/control.hpp"

#include <array>

#include "net/sha256.hpp"
#include "net/socket.hpp"
#include "net/store_protocol.hpp"

namespace lockstep::net {
namespace {

constexpr std::chrono::seconds kPatience{10};

/// The talk on one connection.
class Handshake {
 public:
  Handshake(int socket, Purpose purpose, std::string_view secret, Deadline deadline)
      : socket_(socket),
        where_(remote_address(socket).text()),
        purpose_(purpose),
        secret_(secret),
        deadline_(deadline) {}

  Met run() {
    const std::uint32_t nonce = handshake_nonce(purpose_);
    const std::string sent = greeting(nonce);
    send_all(socket_, sent, deadline_);
    const std::string answer = receive(sizeof nonce);
    if (sent.ends_with(answer)) return Met::plain_store;
    prove(challenges_after(answer));
    return Met::lockstep;
  }

  [[noreturn]] void fail(ControlFailure failure, const std::string& what) const {
    throw ControlError(failure, "at " + where_ + " " + what);
  }

 private:
  [[noreturn]] void fail_unknown() const {
    fail(ControlFailure::not_lockstep,
         "something listens that is no job of Lockstep: another program holds the port. Choose another one.");
  }

  std::string receive(std::size_t count) const {
    std::string bytes(count, '\0');
    receive_exactly(socket_, bytes.data(), count, deadline_);
    return bytes;
  }

  /// The rest of the server's first words.
  Challenges challenges_after(const std::string& beginning) const {
    if (!kServerMark.starts_with(beginning)) fail_unknown();
    const std::string hello = beginning + receive(kServerHelloBytes - beginning.size());
    if (!hello.starts_with(kServerMark)) fail_unknown();
    const char version = hello[kServerMark.size()];
    if (version == kHandshakeVersion) {
      return {purpose_, hello.substr(kServerMark.size() + 1), random_bytes(kChallengeBytes)};
    }
    fail(ControlFailure::not_lockstep,
         "another version of Lockstep listens (handshake " + std::to_string(version) + ", ours is " +
             std::to_string(kHandshakeVersion) + "): use one version on all hosts.");
  }

  void prove(const Challenges& challenges) const {
    send_all(socket_, challenges.client + challenges.client_proof(secret_), deadline_);
    const char verdict = receive(1).front();
    if (verdict == kRefused) {
      fail(ControlFailure::wrong_secret, "another job listens: it refused us (" + refusal() +
                                             "). Give each job an endpoint and a secret of its own.");
    }
    if (verdict != kAccepted) fail_unknown();
    if (equal_in_constant_time(receive(kProofBytes), challenges.server_proof(secret_))) return;
    fail(ControlFailure::wrong_secret,
         "something listens that claims to be this job and does not know its secret.");
  }

  /// The line that says why, cut where it gets long or breaks off.
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
  /// Kept, because a closed connection has no other end to ask for.
  std::string where_;
  Purpose purpose_;
  std::string_view secret_;
  Deadline deadline_;
};

}  // namespace

Met client_handshake(int socket, Purpose purpose, std::string_view secret, Deadline deadline) {
  Handshake handshake(socket, purpose, secret, earlier(deadline, Clock::now() + kPatience));
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
    handshake.fail(
        ControlFailure::broken_off,
        std::string("the connection ended before anything was said (") + error.what() +
            "): another program may hold the port, or the store does not allow this host or user.");
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
  if (client_handshake(socket.get(), Purpose::control, secret, deadline) == Met::plain_store) {
    throw ControlError(ControlFailure::plain_store, "at " + remote_address(socket.get()).text() +
                                                        " a plain store answers: torchrun, or a job without "
                                                        "a secret, has this endpoint. Start every node of "
                                                        "a job "
                                                        "by the same launcher.");
  }
  return socket;
}

}  // namespace lockstep::net
