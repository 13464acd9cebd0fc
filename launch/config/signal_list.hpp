#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// The numbers of --signals-to-handle ("SIGTERM,SIGUSR1"). A name that no signal has is told in `notices` and
/// passed over, as torchrun does. Throws UsageError for a signal that nobody can catch.
std::vector<int> parse_signals(const std::string& text, std::vector<std::string>& notices);

}  // namespace lockstep::launch
