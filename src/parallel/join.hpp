#pragma once

#include "ddp_state.hpp"

namespace lockstep::parallel {

/// In a forward within join(): tells the ranks that are through that this one is not, and learns which are.
/// *Collective*. Throws Error where some are and the options forbid it.
void meet_joined_ranks(DdpState& state);

}  // namespace lockstep::parallel
