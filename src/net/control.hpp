#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/error.hpp"
#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "net/handshake.hpp"

namespace lockstep::net {

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
enum class Met { lockstep, plain_store };

/// The client's side of the handshake on a fresh connection. After Met::plain_store the talk may go on with
/// requests of a store's client. Throws ControlError.
Met client_handshake(int socket, Purpose purpose, std::string_view secret, Deadline deadline);

}  // namespace lockstep::net
