#include "net/control.hpp"

#include <array>

#include "net/sha256.hpp"
#include "net/socket.hpp"
#include "net/store_protocol.hpp"

namespace lockstep::net {
namespace {

constexpr std::chrono::seconds kPatience{10};

[[noreturn]] void fail(int socket, ControlFailure failure, const std::string& what) {
  throw ControlError(failure, "at " + remote_address(socket).text() + " " + what);
}

std::string receive(int socket, std::size_t count, Deadline deadline) {
  std::string bytes(count, '\0');
  receive_exactly(socket, bytes.data(), count, deadline);
  return bytes;
}

/// The line that says why, cut where it gets long or breaks off.
std::string refusal(int socket, Deadline deadline) {
  constexpr std::size_t kLongest = 200;
  std::string line;
  try {
    for (char next = 0; line.size() < kLongest && next != '\n';) {
      receive_exactly(socket, &next, 1, deadline);
      if (next >= ' ' && next <= '~') line += next;
    }
  } catch (const CommunicationError&) {
  }
  return line;
}

[[noreturn]] void fail_unknown(int socket) {
  fail(socket, ControlFailure::not_lockstep,
       "something listens that is no job of Lockstep: another program holds the port. Choose another one.");
}

void check_answer(int socket, const Challenges& challenges, std::string_view secret, Deadline deadline) {
  const char verdict = receive(socket, 1, deadline).front();
  if (verdict == kRefused) {
    fail(socket, ControlFailure::wrong_secret,
         "another job listens: it refused us (" + refusal(socket, deadline) +
             "). Give each job an endpoint and a secret of its own.");
  }
  if (verdict != kAccepted) fail_unknown(socket);
  const std::string proof = receive(socket, kProofBytes, deadline);
  if (equal_in_constant_time(proof, challenges.server_proof(secret))) return;
  fail(socket, ControlFailure::wrong_secret,
       "something listens that claims to be this job and does not know its secret.");
}

Met talk(int socket, Purpose purpose, std::string_view secret, Deadline deadline) {
  const std::uint32_t nonce = handshake_nonce(purpose);
  const std::string sent = greeting(nonce);
  send_all(socket, sent, deadline);
  std::string hello = receive(socket, sizeof nonce, deadline);
  if (sent.ends_with(hello)) return Met::plain_store;
  if (!kServerMark.starts_with(hello)) fail_unknown(socket);
  hello += receive(socket, kServerHelloBytes - hello.size(), deadline);
  if (!hello.starts_with(kServerMark)) fail_unknown(socket);
  const char version = hello[kServerMark.size()];
  if (version != kHandshakeVersion) {
    fail(socket, ControlFailure::not_lockstep,
         "another version of Lockstep listens (handshake " + std::to_string(version) + ", ours is " +
             std::to_string(kHandshakeVersion) + "): use one version on all hosts.");
  }
  const Challenges challenges{purpose, hello.substr(kServerMark.size() + 1), random_bytes(kChallengeBytes)};
  send_all(socket, challenges.client + challenges.client_proof(secret), deadline);
  check_answer(socket, challenges, secret, deadline);
  return Met::lockstep;
}

}  // namespace

Met shake_hands(int socket, Purpose purpose, std::string_view secret, Deadline deadline) {
  try {
    return talk(socket, purpose, secret, earlier(deadline, Clock::now() + kPatience));
  } catch (const ControlError&) {
    throw;
  } catch (const TimeoutError&) {
    fail(socket, ControlFailure::silent,
         "something listens and does not answer: another program may hold the port, or that process is "
         "stopped.");
  } catch (const CommunicationError& error) {
    fail(socket, ControlFailure::not_lockstep,
         std::string("the connection ended before anything was said (") + error.what() +
             "): another program may hold the port, or the store does not admit this host or user.");
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
  if (shake_hands(socket.get(), Purpose::control, secret, deadline) == Met::plain_store) {
    fail(socket.get(), ControlFailure::plain_store,
         "a plain store answers: torchrun, or a job without a secret, has this endpoint. Start every node of "
         "a job "
         "by the same launcher.");
  }
  return socket;
}

}  // namespace lockstep::net
