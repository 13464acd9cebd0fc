#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "config/launch_config.hpp"
#include "net/address.hpp"

namespace lockstep::launch {

/// How the nodes find each other: a part of make_config. Adds a notice for each option that is accepted but
/// has no effect. Throws UsageError.
void set_rendezvous(const Parsed& parsed, LaunchConfig& config);

/// Parses "host", "host:port", "[IPv6]" or "[IPv6]:port"; `default_port` if there is no port. Throws
/// UsageError.
net::HostPort parse_endpoint(const std::string& text, std::uint16_t default_port);

/// Parses "N" or "MIN:MAX". Throws UsageError.
std::pair<int, int> parse_nodes(const std::string& text);

}  // namespace lockstep::launch
