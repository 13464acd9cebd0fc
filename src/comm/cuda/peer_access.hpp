#pragma once

#include <string>

namespace lockstep::comm {

/// The pairs of `count` devices of which each reaches the other's memory, for people: "all", "none", or
/// "0-1, 2-3"; "" of fewer than two. *Local*.
std::string peer_access_text(int count, bool (*can_access_peer)(int index, int peer));

}  // namespace lockstep::comm
