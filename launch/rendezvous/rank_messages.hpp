#pragma once

#include <vector>

#include "failure/hang.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// The message `still`: a node's ranks, a short list of values each. None: they move.
Json still_message(int round, const std::vector<RankStatus>& views);

/// Throws DataError when the message is not of that form.
std::vector<RankStatus> read_still(const Json& message);

}  // namespace lockstep::launch
