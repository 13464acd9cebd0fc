#pragma once

#include "lockstep/core/error.hpp"

namespace lockstep::net {

/// What a client sent is no request, or none that can be met: its connection is closed.
class BadRequest : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// The server's memory for its clients is spent.
class StoreFull : public BadRequest {
 public:
  using BadRequest::BadRequest;
};

}  // namespace lockstep::net
