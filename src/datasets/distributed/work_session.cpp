#include "datasets/distributed/work_session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <thread>

#include "coordination/memory_store.hpp"
#include "coordination/message_timer.hpp"
#include "core/process_identity.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using coordination::Milliseconds;
using coordination::RankSession;
using coordination::WaitTimes;

constexpr Milliseconds kShortestPause{1};
constexpr Milliseconds kLongestPause{100};
/// How often a waiting rank checks the others' heartbeats and failures.
constexpr Milliseconds kLook{500};
/// How often rank 0 looks whether those that it waits for at the end are dead.
constexpr Milliseconds kLookAtEnd{100};
/// How many others a rank that waits for all asks the store about at a time.
constexpr std::size_t kMonitored = 8;
constexpr const char* kLeft = "left";

RankSession begin_session(const DistributedContext& ranks, const std::string& what, const WaitTimes& times) {
  auto store = ranks.store;
  if (!store && !ranks.alone())
    throw UsageError(fmt::format("{}: {} ranks, but no store. Use distributed_context().", what, ranks.size));
  if (!store) store = in_process_stores(1).front();
  const std::string prefix = fmt::format("session/{}/", store->next_session());
  return {std::move(store), prefix, GroupInfo::whole(ranks.rank, ranks.size), times};
}

}  // namespace

WorkSession::WorkSession(const DistributedContext& ranks, std::string what, WaitTimes times)
    : ranks_(ranks), what_(std::move(what)), session_(begin_session(ranks, what_, times)) {
  if (ranks_.alone()) return;
  store().set(key(fmt::format("host/{}", ranks_.rank)), this_process().host);
  liveness_.emplace(session_);
}

void WorkSession::check() const {
  if (ranks_.alone()) return;
  const auto failure = session_.failure();
  if (!failure || failure->rank == ranks_.rank) return;
  throw RemoteError(fmt::format("rank {} ends because rank {} (host {}) failed: {}", ranks_.rank,
                                failure->rank, failure->host, failure->text),
                    failure->rank);
}

void WorkSession::tell(const std::string& text) noexcept {
  if (ranks_.alone()) return;
  try {
    session_.post_failure(text);
  } catch (const std::exception& error) {
    std::cerr << fmt::format("{}: the other ranks could not be notified of a failure: {}\n", what_,
                             error.what());
  }
}

void WorkSession::fail(const std::string& text) noexcept {
  tell(text);
  try {
    leave_until(session_.now() + session_.times().farewell);
  } catch (const std::exception&) {
    // The store is gone, and so are the others.
  }
}

void WorkSession::check_neighbour(const std::string& describe) {
  const int next = (ranks_.rank + 1) % ranks_.size;
  if (!is_dead(next)) return;
  // A rank that has left is finished: it may belong to another group.
  const auto remaining = session_.missing(kLeft);
  if (std::find(remaining.begin(), remaining.end(), next) != remaining.end()) fail_dead(next, describe);
}

void WorkSession::fail_dead(int rank, const std::string& describe) const {
  throw RemoteError(
      fmt::format("{}: rank {} on host {} is dead: it has sent no heartbeat for {} ms, with rank {} {}",
                  what_, rank, host_of(rank), session_.times().dead_after.count(), ranks_.rank, describe),
      rank);
}

std::string WorkSession::host_of(int rank) const {
  const std::string host = key(fmt::format("host/{}", rank));
  return store().contains(host) ? store().get(host) : "unknown";
}

void WorkSession::wait_until(const std::function<bool()>& ready, const std::function<std::string()>& describe,
                             const std::function<std::vector<int>()>& awaited) {
  const auto begun = session_.now();
  auto look_at = begun + kLook;
  coordination::MessageTimer messages(session_.times().message);
  for (Milliseconds pause = kShortestPause; !ready(); pause = std::min(2 * pause, kLongestPause)) {
    std::this_thread::sleep_for(pause);
    if (session_.now() < look_at) continue;
    look_at = session_.now() + kLook;
    check();
    for (const int rank : awaited()) {
      if (is_dead(rank)) fail_dead(rank, "waiting " + describe());
    }
    if (!messages.is_due(std::chrono::duration_cast<Milliseconds>(session_.now() - begun))) continue;
    std::cerr << fmt::format("lockstep [rank {}]: {}: waiting {}\n", ranks_.rank, what_, describe())
              << std::flush;
  }
}

std::string WorkSession::await(const std::string& name, int rank) {
  wait_until([&] { return store().contains(key(name)); },
             [&] { return fmt::format("for rank {} on host {}", rank, host_of(rank)); },
             [&] { return std::vector<int>{rank}; });
  return store().get(key(name));
}

void WorkSession::await_all(const std::string& name, const std::string& whom) {
  const auto monitored = [&] {
    std::vector<int> ranks = session_.missing(name);
    // The next ones after this rank first, so that each is monitored by others.
    std::rotate(ranks.begin(), std::upper_bound(ranks.begin(), ranks.end(), ranks_.rank), ranks.end());
    ranks.resize(std::min(kMonitored, ranks.size()));
    return ranks;
  };
  wait_until([&] { return session_.is_complete(name); },
             [&] {
               return fmt::format("for {}: {} of {} ranks have arrived", whom, session_.arrived(name),
                                  ranks_.size);
             },
             monitored);
}

void WorkSession::leave_until(net::Deadline deadline) {
  if (ranks_.alone()) return;
  session_.arrive(kLeft);
  if (ranks_.rank != 0) return;
  // Without check(): a failed rank, too, waits until the others have received its error.
  const auto someone_may_leave = [&](Milliseconds waited) {
    const auto remaining = session_.missing(kLeft);
    return std::any_of(remaining.begin(), remaining.end(), [&](int rank) {
      return !is_dead(rank) && (liveness_->has_arrived(rank) || waited < session_.times().dead_after);
    });
  };
  session_.await(kLeft, {.deadline = deadline, .look = kLookAtEnd, .go_on = someone_may_leave});
}

}  // namespace lockstep
