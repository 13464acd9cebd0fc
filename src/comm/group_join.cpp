#include "comm/group_join.hpp"

#include <fmt/format.h>

#include <numeric>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process_identity.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* kAborted = "aborted";
constexpr std::chrono::seconds kAtOnce{1};

/// "pid 4711 on node0".
std::string own_words() {
  const ProcessIdentity process = this_process();
  return fmt::format("pid {} on {}", process.pid, process.host);
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
  const std::string first = store.set_if_absent("world_size", fmt::format("{} {}", size, members.rank));
  const auto gap = first.find(' ');
  if (first.substr(0, gap) == size) return;
  refuse(store, members,
         fmt::format(
             "rank {} was started with a world of {} ranks, but rank {} of the same job with a world of {}: "
             "start all of them with the same WORLD_SIZE",
             members.rank, size, first.substr(gap + 1), first.substr(0, gap)));
}

void claim_rank(const Store& store, const GroupInfo& members) {
  const std::string process = fmt::format("process/{}", members.rank);
  if (store.add(fmt::format("claimed/{}", members.rank), 1) == 1) return store.set(process, own_words());
  refuse(store, members,
         fmt::format("two processes claim rank {} of {}: {}, and {}. Give each its own RANK, or use another "
                     "MASTER_PORT if they belong to two jobs",
                     members.rank, members.size(), store.get(process, kAtOnce), own_words()));
}

}  // namespace

GroupInfo GroupInfo::whole(int rank, int size) {
  std::vector<int> names(static_cast<std::size_t>(size));
  std::iota(names.begin(), names.end(), 0);
  return {rank, std::move(names), fmt::format("rank {} of {}", rank, size)};
}

GroupInfo GroupInfo::part(const std::vector<int>& ranks, int place) const {
  GroupInfo result{place, {}, ""};
  for (const int member : ranks) result.names.push_back(names.at(static_cast<std::size_t>(member)));
  result.who =
      fmt::format("rank {} ({} of {} in the group [{}])", result.names.at(static_cast<std::size_t>(place)),
                  place, ranks.size(), fmt::join(result.names, ","));
  return result;
}

StoreBarrier join_group(const Store& store, const GroupInfo& members, std::chrono::milliseconds timeout) {
  check_size(store, members);
  claim_rank(store, members);
  StoreBarrier meetings(store.with_prefix("join"), members);
  meetings.arrive_and_wait(timeout);
  if (!store.contains(kAborted)) return meetings;
  give_up(store, members, members.who + ": the group cannot form: " + store.get(kAborted, kAtOnce));
}

/// The words first: a rank that is released looks for them.
void abort_join(const Store& store, const std::string& words) {
  store.set(kAborted, words);
  StoreBarrier::release(store.with_prefix("join"));
}

}  // namespace lockstep::comm
