#include "comm/store_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "comm/errors.hpp"
#include "core/variables.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process_identity.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "net/deadline.hpp"
#include "net/waiting_notice.hpp"

namespace lockstep::comm {
namespace {

using net::Clock;
using net::left_until;
using Milliseconds = std::chrono::milliseconds;

/// How often rank 0 probes the others at the end of a barrier.
constexpr Milliseconds kSlice{1000};

constexpr const char* kKeys[] = {"arrived", "count", "done", "seen", "over"};

Milliseconds since(Clock::time_point begun) {
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - begun);
}

std::string keys_of(std::int64_t barrier) { return fmt::format("barrier/{}/", barrier); }

constexpr const char* kAborted = "aborted";

/// "pid 4711 on node0".
std::string own_identity() {
  const ProcessIdentity process = this_process();
  return fmt::format("pid {} on {}", process.pid, process.host);
}

/// If rank 0 hosts the store, gives the others time to read the reason there.
[[noreturn]] void give_up(const Store& store, const GroupInfo& members, const std::string& reason) {
  constexpr std::chrono::milliseconds kMoment{500};
  if (members.rank == 0) store.wait("the end of a moment", kMoment);
  throw CommunicationError(reason);
}

[[noreturn]] void refuse(const Store& store, const GroupInfo& members, const std::string& reason) {
  abort_join(store, reason);
  give_up(store, members, reason);
}

/// The first rank sets the group's size.
void check_size(const Store& store, const GroupInfo& members) {
  const std::string size = fmt::to_string(members.size());
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
  if (store.add(fmt::format("claimed/{}", members.rank), 1) == 1) return store.set(process, own_identity());
  refuse(store, members,
         fmt::format("two processes claim rank {} of {}: {}, and {}. Give each its own RANK, or use another "
                     "MASTER_PORT if they belong to two jobs",
                     members.rank, members.size(), store.get(process, kAtOnce), own_identity()));
}

constexpr std::chrono::seconds kAnswer{3};
constexpr const char* kFailures = "reasons";
constexpr char kEnd = '\0';

const c10d::Store* innermost(const Store& store) {
  c10d::Store* const outer = store.c10d_store().get();
  auto* const prefix = dynamic_cast<c10d::PrefixStore*>(outer);
  return prefix == nullptr ? outer : prefix->getUnderlyingNonPrefixStore().get();
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  const std::span<const int> shown(ranks.data(), std::min(ranks.size(), kShown));
  const std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(shown, ", "));
  return ranks.size() > kShown ? fmt::format("{} and {} more", text, ranks.size() - kShown) : text;
}

StoreBarrier::StoreBarrier(Store store, GroupInfo members)
    : store_(std::move(store)), members_(std::move(members)) {}

std::string StoreBarrier::who() const { return fmt::format("{}: barrier #{}", members_.who, barriers_); }

void StoreBarrier::arrive_and_wait(Milliseconds timeout, const Probe& probe, Milliseconds probe_interval,
                                   std::string_view activity) {
  if (members_.size() == 1) return;
  ++barriers_;
  const Heartbeat::Waiting beat(process_heartbeat(), activity, static_cast<std::uint64_t>(barriers_));
  try {
    run(timeout, probe, probe_interval);
  } catch (const ConnectionLost& error) {
    throw CommunicationError(who() +
                             " failed: the job's store has closed the connection. The process that hosts it "
                             "(rank 0, or the launcher) has "
                             "ended or cannot be reached: see what it did last. " +
                             error.what());
  }
}

void StoreBarrier::release(const Store& store) {
  for (const auto* key : {"done", "over"}) store.set(keys_of(1) + key, "1");
}

void StoreBarrier::run(Milliseconds timeout, const Probe& probe, Milliseconds probe_interval) {
  const auto deadline = Clock::now() + timeout;
  const std::string keys = keys_of(barriers_);
  store_.append(keys + "arrived", fmt::format("{},", members_.rank));
  if (store_.add(keys + "count", 1) == members_.size()) {
    store_.set(keys + "done", "1");
    // When all have arrived at a barrier, all have left the one before it.
    for (const auto* key : kKeys) {
      if (barriers_ > 1) store_.erase(keys_of(barriers_ - 1) + key);
    }
  } else if (!wait_for_all(keys, deadline, probe, probe_interval)) {
    const auto absentees = missing(keys);
    if (!absentees.empty()) {  // Otherwise the last one arrived just now.
      throw TimeoutError(fmt::format("{} timed out after {} ms: {} did not arrive. See what {} did last: it "
                                     "may be slow, stuck, dead, or may not call the barrier at all",
                                     who(), timeout.count(), list_ranks(absentees),
                                     absentees.size() == 1 ? "that rank" : "those ranks"),
                         absentees);
    }
  }
  acknowledge(keys, deadline, probe);
}

bool StoreBarrier::wait_for_all(const std::string& keys, Deadline deadline, const Probe& probe,
                                Milliseconds probe_interval) const {
  const std::string done = keys + "done";
  for (const auto begun = Clock::now();;) {
    const Milliseconds left = left_until(deadline);
    if (store_.wait(done, probe ? std::min(left, probe_interval) : left)) return true;
    // A store that returns early without a probe is not asked again and again.
    const bool early = !probe && since(begun) < left;
    if (early || left_until(deadline) == Milliseconds(0)) return false;
    const std::string why = probe ? probe_missing(probe, keys, since(begun)) : "";
    // The last rank may have arrived, and left again, in the meantime.
    if (!why.empty() && !store_.contains(done)) throw CommunicationError(who() + " failed: " + why);
  }
}

std::string StoreBarrier::probe_missing(const Probe& probe, const std::string& keys,
                                        Milliseconds waited) const {
  std::vector<int> absentees;
  try {
    absentees = missing(keys);
  } catch (const TimeoutError&) {
    return "";  // The store is busy: the next probe may find more.
  }
  // All have registered, but one may have ended before it was counted.
  return probe(absentees.empty() ? others() : absentees, waited);
}

std::vector<int> StoreBarrier::others() const {
  std::vector<int> ranks = members_.names;
  ranks.erase(ranks.begin() + members_.rank);
  return ranks;
}

std::vector<int> StoreBarrier::missing(const std::string& keys) const {
  const std::string arrived = store_.get(keys + "arrived", kAtOnce);
  std::set<int> places;
  for (const auto part : variables::split_list(arrived))
    places.insert(variables::whole_number(part).value_or(-1));
  std::vector<int> ranks;
  for (int place = 0; place < members_.size(); ++place) {
    if (!places.contains(place)) ranks.push_back(members_.name(place));
  }
  return ranks;
}

void StoreBarrier::acknowledge(const std::string& keys, Deadline deadline, const Probe& probe) const {
  if (members_.rank != 0) {
    if (store_.add(keys + "seen", 1) == members_.size() - 1) store_.set(keys + "over", "1");
    return;
  }
  // All have arrived. If a rank dies between its arrival and here, the next operation detects it.
  const auto begun = Clock::now();
  while (!store_.wait(keys + "over", std::min(left_until(deadline), kSlice))) {
    const bool over = left_until(deadline) == Milliseconds(0);
    if (over || (probe && !probe(others(), since(begun)).empty())) return;
  }
}

StoreBarrier join_group(const Store& store, const GroupInfo& members, std::chrono::milliseconds timeout) {
  check_size(store, members);
  claim_rank(store, members);
  const net::WaitingNotice notice(fmt::format("rank {}", members.name(members.rank)),
                                  fmt::format("for all {} ranks of its group to join", members.size()));
  StoreBarrier barrier(store.with_prefix("join"), members);
  barrier.arrive_and_wait(timeout);
  if (!store.contains(kAborted)) return barrier;
  give_up(store, members, members.who + ": the group cannot form: " + store.get(kAborted, kAtOnce));
}

/// Sets the reason first, because released ranks look for it.
void abort_join(const Store& store, const std::string& reason) {
  store.set(kAborted, reason);
  StoreBarrier::release(store.with_prefix("join"));
}

Store bounded(const Store& store, std::chrono::milliseconds answer) {
  Store own = store.clone();
  if (innermost(own) != innermost(store)) own.c10d_store()->setTimeout(answer);
  return own;
}

FirstFailure::FirstFailure(const Store& store) : store_(bounded(store, kAnswer)) {}

void FirstFailure::post(const std::string& reason) const noexcept {
  try {
    store_.append(kFailures, reason + kEnd);
  } catch (const std::exception&) {
    // The store is gone or unreachable, also for those who would read the reason.
  }
}

std::string FirstFailure::read(std::chrono::milliseconds limit) const noexcept {
  try {
    if (!store_.wait(kFailures, limit)) return "";
    const std::string all = store_.get(kFailures, kAnswer);
    return all.substr(0, all.find(kEnd));
  } catch (const std::exception&) {
    return "";  // In that case nobody could post either.
  }
}

}  // namespace lockstep::comm
