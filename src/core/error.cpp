#include "lockstep/core/error.hpp"

#include <utility>

namespace lockstep {

TimeoutError::TimeoutError(const std::string& text, std::vector<int> missing_ranks)
    : CommunicationError(text), missing_ranks_(std::move(missing_ranks)) {}

RemoteError::RemoteError(const std::string& text, int rank) : CommunicationError(text), rank_(rank) {}

}  // namespace lockstep
