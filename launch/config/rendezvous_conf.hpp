#pragma once

#include <string>
#include <vector>

#include "config/rendezvous_config.hpp"

namespace lockstep::launch {

/// Reads `--rdzv-conf` ("join_timeout=60,is_host=1") into the plan, in torchrun's grammar: items between
/// commas, blanks around names and values dropped, and also one pair of quotes around the whole. A key that
/// means nothing here is told in `notices`. Throws UsageError that names the item.
void read_rendezvous_conf(const std::string& text, RendezvousConfig& config,
                          std::vector<std::string>& notices);

}  // namespace lockstep::launch
