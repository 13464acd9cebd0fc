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

Group::Joined Group::join(const GroupOptions& options, Board& board) {
  const Guest self{.rank = options.members.rank,
                   .size = options.members.size(),
                   .host = options.host,
                   .threads = options.threads,
                   .deadline = net::Clock::now() + options.join_timeout,
                   .layout = [&](int ranks) {
                     const auto heap = options.heap_bytes == 0 ? fair_share(ranks) : options.heap_bytes;
                     return Layout::of(ranks, options.staging_bytes, heap);
                   }};
  Meeting meeting = meet(self, board);
  Joined joined{nullptr, meeting.hosts, options.members, meeting.obstacle};
  const bool spans = joined.hosts.count() > 1;
  if (spans) joined.members.hosts = meeting.host_names;
  if (meeting.peers.empty()) return joined;
  const auto timeout = options.timeout + (spans ? options.patience : net::Milliseconds(0));
  joined.group =
      std::make_unique<Group>(joined.members.part(joined.hosts.mine()), std::move(meeting), timeout);
  return joined;
}

Group::Group(const Members& members, Meeting meeting, net::Milliseconds timeout)
    : exchange_(members, std::move(meeting), timeout),
      heap_(std::make_shared<Heap>(exchange_.peers()[static_cast<std::size_t>(members.rank)].segment,
                                   exchange_.layout().heap)),
      mailbox_(exchange_, *heap_) {}

Group::~Group() { exchange_.leave(false); }

}  // namespace lockstep::shm
