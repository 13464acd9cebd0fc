#include "comm/group_join.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/process_identity.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* kAborted = "called_off";
constexpr std::chrono::seconds kAtOnce{1};

/// "pid 4711 on node0".
std::string own_words() {
  const ProcessIdentity process = this_process();
  return "pid " + std::to_string(process.pid) + " on " + process.host;
}

/// Where rank 0 hosts the store, the others have a moment to read there why.
[[noreturn]] void give_up(const Store& store, const GroupInfo& members, const std::string& words) {
  constexpr std::chrono::milliseconds kMoment{500};
  if (members.rank == 0) store.wait("the end of a moment", kMoment);
  throw CommunicationError(words);
}

[[noreturn]] void refuse(const Store& store, const GroupInfo& members, const std::string& words) {
  abort_join(store, words);
  give_up(store, members, words);
}

/// Whoever comes first says how large the group is.
void check_size(const Store& store, const GroupInfo& members) {
  const std::string size = std::to_string(members.size());
  const std::string rank = std::to_string(members.rank);
  const std::string first = store.set_if_absent("world_size", size + " " + rank);
  const auto gap = first.find(' ');
  if (first.substr(0, gap) == size) return;
  refuse(store, members,
         "rank " + rank + " was started with a world of " + size + " ranks, but rank " +
             first.substr(gap + 1) + " of the same job with a world of " + first.substr(0, gap) +
             ": start all of them with the same WORLD_SIZE");
}

void claim_rank(const Store& store, const GroupInfo& members) {
  const std::string rank = std::to_string(members.rank);
  if (store.add("claimed/" + rank, 1) == 1) return store.set("process/" + rank, own_words());
  refuse(store, members,
         "two processes claim rank " + rank + " of " + std::to_string(members.size()) + ": " +
             store.get("process/" + rank, kAtOnce) + ", and " + own_words() +
             ". Give each its own RANK, or use another MASTER_PORT if they belong to two jobs");
}

}  // namespace

StoreBarrier join_group(const Store& store, const GroupInfo& members, std::chrono::milliseconds timeout) {
  check_size(store, members);
  claim_rank(store, members);
  StoreBarrier meetings(store.with_prefix("join"), members);
  meetings.arrive_and_wait(timeout);
  if (!store.contains(kAborted)) return meetings;
  give_up(store, members, members.who + ": the group cannot form: " + store.get(kAborted, kAtOnce));
}

/// The words first: who is let go looks for them.
void abort_join(const Store& store, const std::string& words) {
  store.set(kAborted, words);
  StoreBarrier::release(store.with_prefix("join"));
}

}  // namespace lockstep::comm
