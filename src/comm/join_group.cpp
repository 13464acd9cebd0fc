#include "comm/join_group.hpp"

#include <fmt/format.h>

#include "comm/group_key_value_store.hpp"
#include "core/process_identity.hpp"
#include "lockstep/core/error.hpp"
#include "net/waiting_notice.hpp"

namespace lockstep::comm {
namespace {

using coordination::RankSession;

/// Nobody knows how many ranks still come to read why a group cannot form, so the rank that refuses it, which
/// may host the store, stays only for those that wait already.
constexpr coordination::WaitTimes kJoinTimes{.farewell = std::chrono::milliseconds(500)};

RankSession join_session(const Store& store, GroupInfo members) {
  return {key_value_store(store), "join/", std::move(members), kJoinTimes};
}

/// "pid 4711 on node0".
std::string own_identity() {
  const ProcessIdentity process = this_process();
  return fmt::format("pid {} on {}", process.pid, process.host);
}

/// Posts the reason first, because released ranks look for it.
[[noreturn]] void refuse(const RankSession& session, const std::string& reason) {
  session.post_failure(reason);
  coordination::Barrier::release(session);
  if (session.members().rank == 0) session.stay_until_read();
  throw CommunicationError(reason);
}

/// The first rank sets the group's size.
void check_size(const RankSession& session) {
  const GroupInfo& members = session.members();
  const std::string size = fmt::to_string(members.size());
  const std::string first =
      session.store().set_if_absent(session.key("world_size"), fmt::format("{} {}", size, members.rank));
  const auto gap = first.find(' ');
  if (first.substr(0, gap) == size) return;
  refuse(session,
         fmt::format(
             "rank {} was started with a world of {} ranks, but rank {} of the same job with a world of {}: "
             "start all of them with the same WORLD_SIZE",
             members.rank, size, first.substr(gap + 1), first.substr(0, gap)));
}

void claim_rank(const RankSession& session) {
  const GroupInfo& members = session.members();
  const std::string process = session.key(fmt::format("process/{}", members.rank));
  if (session.store().add(session.key(fmt::format("claimed/{}", members.rank)), 1) == 1)
    return session.store().set(process, own_identity());
  const std::string first = session.store().get(process), own = own_identity();
  refuse(session,
         fmt::format("two processes claim rank {} of {}: {}, and {}. Give each its own RANK, or use another "
                     "MASTER_PORT if they belong to two jobs{}",
                     members.rank, members.size(), first, own,
                     first == own ? ". If this process makes the group again, give it another prefix of the "
                                    "store (Store::with_prefix) on all ranks"
                                  : ""));
}

}  // namespace

coordination::Barrier join_group(const Store& store, const GroupInfo& members,
                                 std::chrono::milliseconds timeout,
                                 const coordination::Barrier::Probe& probe) {
  const RankSession session = join_session(store, members);
  check_size(session);
  claim_rank(session);
  const net::WaitingNotice notice(fmt::format("rank {}", members.name(members.rank)),
                                  fmt::format("for all {} ranks of its group to join", members.size()));
  coordination::Barrier barrier(session);
  barrier.arrive_and_wait(timeout, probe, kJoinLook);
  const auto failure = session.failure();
  if (!failure) return barrier;
  const std::string reason = members.who + ": the group cannot form: " + failure->text;
  // The host of the store leaves after those that were released with it.
  if (members.rank == 0) session.stay_until_read();
  throw CommunicationError(reason);
}

void abort_join(const Store& store, const std::string& reason) {
  const RankSession session = join_session(store, GroupInfo{});
  session.post_failure(reason);
  coordination::Barrier::release(session);
}

}  // namespace lockstep::comm
