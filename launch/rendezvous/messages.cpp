#include "rendezvous/messages.hpp"

#include <fmt/core.h>

namespace lockstep::launch {

std::string describe(const NodeInfo& node, std::optional<int> group_rank) {
  return fmt::format("{} (host {}, process {})", group_rank ? fmt::format("node {}", *group_rank) : "a node",
                     node.host, node.pid);
}

}  // namespace lockstep::launch
