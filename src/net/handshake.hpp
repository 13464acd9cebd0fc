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

// How two programs of a job prove to each other that they know its secret, on the port that also serves
// PyTorch's clients.
//
// client  the 10 bytes of every store client (validate, ping), with "LKSC" (control) or "LKSS" (store) as the
//         number of the ping
// server  "LOCKSTEP", version (1 byte), challenge (32 bytes). A server without a secret, and PyTorch's own,
//         returns the 4 bytes: then this is a plain store, and the client may continue as a plain client
// client  challenge (32), proof (32)
// server  "+", proof (32); or "-", a line with the reason, and the end of the connection
//
// A proof is the HMAC-SHA256, keyed with the secret, of the side's name, the purpose and both challenges: it
// cannot be replayed or reflected. What follows is neither encrypted nor protected against someone who can
// modify packets on the way.

enum class Purpose : char { control = 'C', store = 'S' };

inline constexpr std::string_view kServerMark = "LOCKSTEP";
inline constexpr char kHandshakeVersion = 1;
inline constexpr std::size_t kChallengeBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kServerHelloBytes = 8 + 1 + kChallengeBytes;
inline constexpr char kAccepted = '+', kRefused = '-';

/// The number in the client's ping.
std::uint32_t handshake_nonce(Purpose purpose);

/// Both challenges, and the proofs derived from them.
struct Challenges {
  Purpose purpose = Purpose::control;
  std::string server;
  std::string client;

  std::string client_proof(std::string_view secret) const;
  std::string server_proof(std::string_view secret) const;
};

/// The server's side. Consumes the first bytes of a connection, only as many as it needs, and keeps at most
/// 64.
class ServerHandshake {
 public:
  explicit ServerHandshake(std::string_view secret) : secret_(secret) {}

  enum class Result {
    undecided,  // needs more bytes
    plain,      // a store client without proof; send the answer if it is admitted
    control,    // proven
    store,      // proven
    wrong_secret,
    refused,  // not a client of this protocol
  };

  /// Consumes bytes from the front of `bytes`.
  Result receive(std::string_view& bytes);
  /// Returns and clears the bytes to send now.
  std::string take_answer();

 private:
  Result take_greeting();
  Result take_proof();

  /// Owned by the server's options, which outlive this object.
  std::string_view secret_;
  Challenges challenges_;
  std::string bytes_;
  std::string answer_;
};

/// Why a control connection failed.
enum class ControlFailure {
  nobody_listens,  // refused or unanswered until the deadline
  silent,          // something listens and does not answer
  wrong_secret,    // the secrets differ: two jobs use one endpoint
  plain_store,     // PyTorch's store (such as torchrun's), or that of a job without a secret
  broken_off,      // the connection ended early; a retry may succeed
  not_lockstep,    // another program
};

class ControlError : public CommunicationError {
 public:
  ControlError(ControlFailure failure, const std::string& text)
      : CommunicationError(text), failure_(failure) {}
  ControlFailure failure() const noexcept { return failure_; }

 private:
  ControlFailure failure_;
};

/// Connects to the job's Server at the first of `addresses` that answers; both sides prove the secret. The
/// server may start listening until the deadline; after connecting, it must answer within 10 seconds. The
/// returned socket is non-blocking, and nothing after the proof has been read from it. Throws ControlError.
/// *Local*; any thread.
FileDescriptor connect_control(const std::vector<Address>& addresses, std::string_view secret,
                               Deadline deadline);

/// What the handshake found at the other end.
enum class PeerKind { lockstep, plain_store };

/// The client's side of the handshake on a new connection; takes at most 10 seconds. A store client without a
/// secret proves nothing and expects a plain store. After PeerKind::plain_store the client may continue with
/// store requests. Throws ControlError.
PeerKind client_handshake(int socket, Purpose purpose, std::string_view secret, Deadline deadline);

}  // namespace lockstep::net
