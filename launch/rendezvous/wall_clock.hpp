#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace lockstep::launch {

/// Wall clocks of hosts are compared for people who read logs of several hosts side by side; nothing else
/// hangs on them.

/// Puts this host's time into a message that is sent now.
void stamp_with_wall_clock(nlohmann::json& message);

/// By how much the clock of the host that has stamped the message is ahead of this one's (a negative time:
/// behind it), the way of the message included; nothing where it has no stamp, or one that is no time.
std::optional<std::chrono::milliseconds> clock_ahead(const nlohmann::json& message);

}  // namespace lockstep::launch
