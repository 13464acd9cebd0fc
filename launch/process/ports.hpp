#pragma once

#include <cstdint>

namespace lockstep::launch {

/// A TCP port that nobody on this host listens on at the moment, over IPv4 or IPv6. Nothing holds it: whoever
/// binds it first has it. Throws lockstep::Error when the system has none. *Local*.
std::uint16_t free_port();

}  // namespace lockstep::launch
