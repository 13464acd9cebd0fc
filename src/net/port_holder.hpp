#pragma once

#include <cstdint>
#include <string>

namespace lockstep::net {

/// Who listens on a TCP port of this host, for an error's text: "process 1234 (python3)"; "another user's
/// process" where /proc does not show it; "" when nobody listens. *Local*; reads /proc, so it is slow.
std::string port_holder(std::uint16_t port);

}  // namespace lockstep::net
