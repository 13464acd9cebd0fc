#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::net {

// How two programs of one job prove to each other that they know its secret, on the port where PyTorch's
// clients are served too.
//
// client  the 10 bytes of every store client (validate, ping), with "LKSC" (control) or "LKSS" (store) as the
//         number to send back
// server  "LOCKSTEP", version (1 byte), challenge (32 bytes). A server without a secret, and PyTorch's own,
//         sends the 4 bytes back: then this is a plain store, and the talk may go on as such
// client  challenge (32), proof (32)
// server  "+", proof (32); or "-", a line that says why not, and the end of the connection
//
// A proof is the HMAC-SHA256, keyed with the secret, of the side's name, the purpose and both challenges: it
// cannot be replayed, nor given back to the side that made it. What is said afterwards is neither hidden nor
// protected against one who can change packets on the way.

enum class Purpose : char { control = 'C', store = 'S' };

inline constexpr std::string_view kServerMark = "LOCKSTEP";
inline constexpr char kHandshakeVersion = 1;
inline constexpr std::size_t kChallengeBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kServerHelloBytes = 8 + 1 + kChallengeBytes;
inline constexpr char kAccepted = '+', kRefused = '-';

/// The number in the client's ping.
std::uint32_t handshake_nonce(Purpose purpose);

/// Both challenges, and the proofs that follow from them.
struct Challenges {
  Purpose purpose = Purpose::control;
  std::string server;
  std::string client;

  std::string client_proof(std::string_view secret) const;
  std::string server_proof(std::string_view secret) const;
};

/// The server's side. Takes the first bytes of a connection, never more than it needs, and never keeps more
/// than 64.
class ServerHandshake {
 public:
  explicit ServerHandshake(std::string_view secret) : secret_(secret) {}

  enum class Result {
    undecided,  // more bytes must come
    plain,      // a store client that proves nothing; `answer` is for one who is let in
    control,    // proven
    store,      // proven
    wrong_secret,
    refused,  // no client of ours
  };

  /// Takes from the front of `bytes`.
  Result receive(std::string_view& bytes);
  /// What is to be sent now. Empties it.
  std::string take_answer();

 private:
  Result take_greeting();
  Result take_proof();

  /// Of the server's options, which live longer.
  std::string_view secret_;
  Challenges challenges_;
  std::string bytes_;
  std::string answer_;
};

/// Why there is no control connection.
enum class ControlFailure {
  nobody_listens,  // refused or unanswered until the deadline
  silent,          // something listens, and says nothing
  wrong_secret,    // one of the two does not know the other's secret: two jobs on one endpoint
  plain_store,     // a store of PyTorch's, or of a job without a secret: torchrun's agent, for one
  broken_off,      // the connection ended before anything was said; it may go better the next time
  not_lockstep,    // some other program
};

class ControlError : public CommunicationError {
 public:
  ControlError(ControlFailure failure, const std::string& text)
      : CommunicationError(text), failure_(failure) {}
  ControlFailure failure() const noexcept { return failure_; }

 private:
  ControlFailure failure_;
};

/// Connects to the Server of this job at the first of `addresses` that answers, and proves the secret both
/// ways. Until the deadline somebody may come to listen; one who listens must answer within 10 seconds. The
/// socket is non-blocking; nothing has been read from it beyond the proof. Throws ControlError. *Local*; any
/// thread.
FileDescriptor connect_control(const std::vector<Address>& addresses, std::string_view secret,
                               Deadline deadline);

/// What a handshake found at the other end.
enum class PeerKind { lockstep, plain_store };

/// The client's side of the handshake on a fresh connection, which takes at most 10 seconds. A store's client
/// without a secret proves nothing and expects a plain store. After PeerKind::plain_store the talk may go on
/// with requests of a store's client. Throws ControlError.
PeerKind client_handshake(int socket, Purpose purpose, std::string_view secret, Deadline deadline);

}  // namespace lockstep::net
