#pragma once

#include <vector>

#include "coordination/messages.hpp"
#include "watch/rank_view.hpp"

namespace lockstep::launch {

/// The message `still`: a node's ranks, a short list of values each. None: they move.
Json still_message(int round, const std::vector<RankView>& views);

/// Throws DataError when the message is not of that form.
std::vector<RankView> read_still(const Json& message);

}  // namespace lockstep::launch
