#include "store_session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/process_identity.hpp"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto kShortestPause = 1ms;
constexpr auto kLongestPause = 100ms;
/// How long a failed rank waits until the others have received its error.
constexpr auto kFarewell = 5s;
/// How often a waiting rank checks the others' heartbeats and failures.
constexpr auto kLookInterval = 500ms;
/// How many others a rank that waits for all asks the store about at a time.
constexpr std::size_t kMonitored = 8;

}  // namespace

StoreSession::StoreSession(const DistributedContext& ranks, std::string what, StoreSessionOptions options)
    : ranks_(ranks), store_(ranks.store), what_(std::move(what)), options_(options) {
  if (!store_ && !ranks_.alone())
    throw UsageError(
        fmt::format("{}: {} ranks, but no store. Use distributed_context().", what_, ranks_.size));
  if (!store_) store_ = in_process_stores(1).front();
  prefix_ = fmt::format("session/{}/", store_->next_session());
  if (ranks_.alone()) return;
  store_->set(key(fmt::format("host/{}", ranks_.rank)), this_process().host);
  beats_ = std::thread([this] { beat_until_end(); });
}

StoreSession::~StoreSession() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ending_.notify_one();
  if (beats_.joinable()) beats_.join();
}

void StoreSession::beat_until_end() {
  const std::string beats = key(fmt::format("beats/{}", ranks_.rank));
  std::unique_lock lock(mutex_);
  try {
    do {
      lock.unlock();
      store_->add(beats, 1);
      lock.lock();
    } while (!ending_.wait_for(lock, options_.beat, [&] { return end_; }));
  } catch (const std::exception&) {
    // The store is gone; the thread that needs it reports that.
  }
}

void StoreSession::check() const {
  if (ranks_.alone() || !store_->contains(key("failed"))) return;
  const auto failure = nlohmann::json::parse(store_->get(key("failed")));
  const int rank = failure.at("rank");
  if (rank == ranks_.rank) return;
  throw RemoteError(fmt::format("rank {} ends because rank {} (host {}) failed: {}", ranks_.rank, rank,
                                host_of(rank), failure.at("text").get<std::string>()),
                    rank);
}

void StoreSession::tell(const std::string& text) noexcept {
  if (ranks_.alone()) return;
  try {
    const nlohmann::json failure = {{"rank", ranks_.rank}, {"text", text}};
    store_->set_if_absent(key("failed"), json_text(failure));
  } catch (const std::exception& error) {
    std::cerr << fmt::format("{}: the other ranks could not be notified of a failure: {}\n", what_,
                             error.what());
  }
}

void StoreSession::fail(const std::string& text) noexcept {
  tell(text);
  try {
    leave_until(Clock::now() + kFarewell);
  } catch (const std::exception&) {
    // The store is gone, and so are the others.
  }
}

void StoreSession::check_neighbour(const std::string& describe) {
  const int next = (ranks_.rank + 1) % ranks_.size;
  // A rank that has left is finished: it may belong to another group.
  if (!is_dead(next) || store_->contains(key(fmt::format("left/{}", next)))) return;
  fail_dead(next, describe);
}

bool StoreSession::is_dead(int rank) {
  if (rank == ranks_.rank) return false;
  const std::int64_t beats = store_->add(key(fmt::format("beats/{}", rank)), 0);
  auto& sight = seen_[rank];
  if (beats != sight.beats) sight = {beats, Clock::now()};
  // A rank without a first heartbeat has not arrived yet, which may take any time.
  return beats > 0 && Clock::now() - sight.since >= options_.dead_after;
}

void StoreSession::fail_dead(int rank, const std::string& describe) const {
  throw RemoteError(
      fmt::format("{}: rank {} on host {} is dead: it has sent no heartbeat for {} ms, with rank {} {}",
                  what_, rank, host_of(rank), options_.dead_after.count(), ranks_.rank, describe),
      rank);
}

std::string StoreSession::host_of(int rank) const {
  const std::string host = key(fmt::format("host/{}", rank));
  return store_->contains(host) ? store_->get(host) : "unknown";
}

void StoreSession::say(const std::string& text) const {
  std::cerr << fmt::format("lockstep [rank {}]: {}: waiting {}\n", ranks_.rank, what_, text) << std::flush;
}

void StoreSession::wait_until(const std::function<bool()>& ready,
                              const std::function<std::string()>& describe,
                              const std::function<std::vector<int>()>& awaited) {
  auto look_at = Clock::now() + kLookInterval, speak_at = Clock::now() + options_.message_interval;
  for (Clock::duration pause = kShortestPause; !ready();
       pause = std::min<Clock::duration>(2 * pause, kLongestPause)) {
    std::this_thread::sleep_for(pause);
    if (Clock::now() < look_at) continue;
    look_at = Clock::now() + kLookInterval;
    check();
    for (const int rank : awaited()) {
      if (!is_dead(rank)) continue;
      fail_dead(rank, "waiting " + describe());
    }
    if (Clock::now() < speak_at) continue;
    speak_at = Clock::now() + options_.message_interval;
    say(describe());
  }
}

std::string StoreSession::await(const std::string& name, int rank) {
  wait_until([&] { return store_->contains(key(name)); },
             [&] { return fmt::format("for rank {} on host {}", rank, host_of(rank)); },
             [&] { return std::vector<int>{rank}; });
  return store_->get(key(name));
}

void StoreSession::arrive(const std::string& name) {
  store_->set(key(fmt::format("{}/{}", name, ranks_.rank)), "");
  store_->add(key(name), 1);
}

void StoreSession::await_all(const std::string& name, const std::string& whom) {
  const auto count = [&] { return store_->add(key(name), 0); };
  std::vector<int> missing;
  for (int step = 1; step < ranks_.size; ++step) missing.push_back((ranks_.rank + step) % ranks_.size);
  const auto monitored = [&] {
    const auto end = missing.begin() + static_cast<std::ptrdiff_t>(std::min(kMonitored, missing.size()));
    const auto came = [&](int rank) { return store_->contains(key(fmt::format("{}/{}", name, rank))); };
    const auto still = missing.erase(std::remove_if(missing.begin(), end, came), end);
    return std::vector<int>(missing.begin(), still);
  };
  wait_until([&] { return count() >= ranks_.size; },
             [&] { return fmt::format("for {}: {} of {} ranks have come", whom, count(), ranks_.size); },
             monitored);
}

void StoreSession::leave() { leave_until(Clock::time_point::max()); }

void StoreSession::leave_until(Clock::time_point deadline) {
  if (ranks_.alone()) return;
  store_->add(key("left"), 1);
  store_->set(key(fmt::format("left/{}", ranks_.rank)), "");
  if (ranks_.rank != 0) return;
  // Without check(): a failed rank, too, waits until the others have received its error.
  for (int rank = 1; rank < ranks_.size; ++rank) {
    const std::string left = key(fmt::format("left/{}", rank));
    const auto come_by = Clock::now() + options_.dead_after;
    const auto given_up = [&] {
      const bool came = store_->add(key(fmt::format("beats/{}", rank)), 0) > 0;
      return is_dead(rank) || (!came && Clock::now() >= come_by);
    };
    while (Clock::now() < deadline && !store_->contains(left) && !given_up())
      std::this_thread::sleep_for(kLongestPause / 10);
  }
}

std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    StoreSessionOptions options) {
  StoreSession session(ranks, what, options);
  auto& store = session.store();
  const auto key = [&](const char* name) { return session.key(fmt::format("node/{}/{}", ranks.node, name)); };
  const auto value = [&](const char* name) {
    return store.contains(key(name)) ? store.get(key(name)) : std::string();
  };
  const auto awaited = [&] {
    // The next rank, too: the ranks of its node may all be dead.
    std::vector<int> others{(ranks.rank + 1) % ranks.size};
    if (const auto worker = value("rank"); !worker.empty()) others.push_back(std::stoi(worker));
    return others;
  };
  try {
    std::string result;
    if (ranks.local_rank == 0) {
      store.set(key("rank"), std::to_string(ranks.rank));
      result = work([&](const std::string& text) { store.set(key("progress"), text); });
      store.set(key("result"), result);
    } else {
      session.wait_until([&] { return store.contains(key("result")); },
                         [&] {
                           const auto progress = value("progress");
                           return "for local rank 0 of this node" + (progress.empty() ? "" : ": " + progress);
                         },
                         awaited);
      result = store.get(key("result"));
    }
    // A failure on one node is an error on all.
    session.arrive("done");
    session.await_all("done", "the other nodes");
    session.leave();
    return result;
  } catch (const std::exception& error) {
    session.fail(error.what());
    throw;
  }
}

}  // namespace lockstep
