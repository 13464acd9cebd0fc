#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// Longer messages are refused on both sides.
constexpr std::size_t kLongestMessage = 1 << 20;

/// The JSON text of a message: an object with a "type". Failures of many ranks that would make it too long
/// lose their details, those of the last ranks first, and then whole records go.
std::string encode(const NodeMessage& message);
std::string encode(const CoordinatorMessage& message);

/// Reads a message. Nothing for a type that is not known, so that a later version may add some; keys that are
/// not known are passed over. Throws DataError, naming the key, for what is not of that form: another
/// program's or another version's.
std::optional<NodeMessage> decode_node_message(const std::string& text);
std::optional<CoordinatorMessage> decode_coordinator_message(const std::string& text);

}  // namespace lockstep::launch
