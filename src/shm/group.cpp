#include "shm/group.hpp"

#include <unistd.h>

#include <utility>

namespace lockstep::shm {
namespace {

std::size_t fair_share(int ranks) {
  const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  return pages / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Group::Joined Group::join(const GroupOptions& options, BootstrapStore& store) {
  const JoinOptions self{.rank = options.members.rank,
                         .size = options.members.size(),
                         .host = options.host,
                         .threads = options.threads,
                         .deadline = net::Clock::now() + options.join_timeout,
                         .layout = [&](int ranks) {
                           const auto heap = options.heap_bytes == 0 ? fair_share(ranks) : options.heap_bytes;
                           return Layout::of(ranks, options.staging_bytes, heap);
                         }};
  PeerConnections connections = connect_peers(self, store);
  Joined joined{nullptr, connections.hosts, options.members, connections.obstacle};
  const bool spans = joined.hosts.count() > 1;
  if (spans) joined.members.hosts = connections.host_names;
  if (connections.peers.empty()) return joined;
  const auto timeout = options.timeout + (spans ? options.timeout_margin : net::Milliseconds(0));
  joined.group =
      std::make_unique<Group>(joined.members.part(joined.hosts.mine()), std::move(connections), timeout);
  return joined;
}

Group::Group(const GroupInfo& members, PeerConnections connections, net::Milliseconds timeout)
    : sync_(members, std::move(connections), timeout),
      heap_(std::make_shared<Heap>(sync_.peers()[static_cast<std::size_t>(members.rank)].segment,
                                   sync_.layout().heap)),
      p2p_queue_(sync_, *heap_) {}

Group::~Group() { sync_.leave(false); }

}  // namespace lockstep::shm
