#pragma once

#include "lockstep/core/error.hpp"

namespace lockstep {

/// A connection to the store or to another rank has closed. Which rank caused it is not determined yet.
class ConnectionLost : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

}  // namespace lockstep
