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
  const Members& members = options.members;
  const std::size_t heap = options.heap_bytes == 0 ? fair_share(members.size()) : options.heap_bytes;
  const Layout layout = Layout::of(members.size(), options.staging_bytes, heap);
  const auto deadline = net::Clock::now() + options.join_timeout;
  Meeting meeting = meet(members.rank, members.size(), board, deadline, layout.size, layout.heap);
  if (!meeting.obstacle.empty()) return {nullptr, std::move(meeting.obstacle)};
  return {std::make_unique<Group>(members, layout, std::move(meeting), options.timeout), ""};
}

Group::Group(const Members& members, const Layout& layout, Meeting meeting, net::Milliseconds timeout)
    : exchange_(members, layout, std::move(meeting), timeout),
      heap_(std::make_shared<Heap>(exchange_.peers()[static_cast<std::size_t>(members.rank)].segment,
                                   layout.heap)),
      mailbox_(exchange_, *heap_) {}

Group::~Group() { exchange_.leave(false); }

}  // namespace lockstep::shm
