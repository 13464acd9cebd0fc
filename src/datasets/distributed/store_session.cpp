#include "store_session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

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

std::string number(int value) { return std::to_string(value); }

}  // namespace

StoreSession::StoreSession(const DistributedContext& ranks, std::string what, StoreSessionOptions options)
    : ranks_(ranks), store_(ranks.store), what_(std::move(what)), options_(options) {
  if (!store_ && !ranks_.alone())
    throw UsageError(what_ + ": " + number(ranks_.size) + " ranks, but no store. Use distributed_context().");
  if (!store_) store_ = in_process_stores(1).front();
  prefix_ = "session/" + std::to_string(store_->next_session()) + "/";
  if (ranks_.alone()) return;
  store_->set(key("host/" + number(ranks_.rank)), this_process().host);
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
  const std::string beats = key("beats/" + number(ranks_.rank));
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
  throw RemoteError("rank " + number(ranks_.rank) + " ends because rank " + number(rank) + " (host " +
                        host_of(rank) + ") failed: " + failure.at("text").get<std::string>(),
                    rank);
}

void StoreSession::tell(const std::string& text) noexcept {
  if (ranks_.alone()) return;
  try {
    const nlohmann::json failure = {{"rank", ranks_.rank}, {"text", text}};
    store_->set_if_absent(key("failed"),
                          failure.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
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
  if (!is_dead(next) || store_->contains(key("left/" + number(next)))) return;
  fail_dead(next, describe);
}

bool StoreSession::is_dead(int rank) {
  if (rank == ranks_.rank) return false;
  const std::int64_t beats = store_->add(key("beats/" + number(rank)), 0);
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
  const std::string host = key("host/" + number(rank));
  return store_->contains(host) ? store_->get(host) : "unknown";
}

void StoreSession::say(const std::string& text) const {
  std::cerr << "lockstep [rank " + number(ranks_.rank) + "]: " + what_ + ": waiting " + text + "\n"
            << std::flush;
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
             [&] { return "for rank " + number(rank) + " on host " + host_of(rank); },
             [&] { return std::vector<int>{rank}; });
  return store_->get(key(name));
}

void StoreSession::arrive(const std::string& name) {
  store_->set(key(name + "/" + number(ranks_.rank)), "");
  store_->add(key(name), 1);
}

void StoreSession::await_all(const std::string& name, const std::string& whom) {
  const auto count = [&] { return store_->add(key(name), 0); };
  std::vector<int> missing;
  for (int step = 1; step < ranks_.size; ++step) missing.push_back((ranks_.rank + step) % ranks_.size);
  const auto monitored = [&] {
    const auto end = missing.begin() + static_cast<std::ptrdiff_t>(std::min(kMonitored, missing.size()));
    const auto came = [&](int rank) { return store_->contains(key(name + "/" + number(rank))); };
    const auto still = missing.erase(std::remove_if(missing.begin(), end, came), end);
    return std::vector<int>(missing.begin(), still);
  };
  wait_until([&] { return count() >= ranks_.size; },
             [&] {
               return "for " + whom + ": " + std::to_string(count()) + " of " + number(ranks_.size) +
                      " ranks have come";
             },
             monitored);
}

void StoreSession::leave() { leave_until(Clock::time_point::max()); }

void StoreSession::leave_until(Clock::time_point deadline) {
  if (ranks_.alone()) return;
  store_->add(key("left"), 1);
  store_->set(key("left/" + number(ranks_.rank)), "");
  if (ranks_.rank != 0) return;
  // Without check(): a failed rank, too, waits until the others have received its error.
  for (int rank = 1; rank < ranks_.size; ++rank) {
    const std::string left = key("left/" + number(rank));
    const auto come_by = Clock::now() + options_.dead_after;
    const auto given_up = [&] {
      const bool came = store_->add(key("beats/" + number(rank)), 0) > 0;
      return is_dead(rank) || (!came && Clock::now() >= come_by);
    };
    while (Clock::now() < deadline && !store_->contains(left) && !given_up())
      std::this_thread::sleep_for(kLongestPause / 10);
  }
}

namespace {

class NodeWork {
 public:
  NodeWork(StoreSession& session, int node)
      : session_(session), prefix_("node/" + std::to_string(node) + "/") {}

  void publish(const std::string& name, const std::string& value) const {
    session_.store().set(key(name), value);
  }

  std::string wait() const {
    session_.wait_until([&] { return has("result"); },
                        [&] {
                          return "for local rank 0 of this node" +
                                 (has("progress") ? ": " + value("progress") : std::string());
                        },
                        [&] {
                          // The next rank, too: the ranks of its node may all be dead.
                          std::vector<int> ranks{(session_.ranks().rank + 1) % session_.ranks().size};
                          if (has("rank")) ranks.push_back(std::stoi(value("rank")));
                          return ranks;
                        });
    return value("result");
  }

 private:
  std::string key(const std::string& name) const { return session_.key(prefix_ + name); }
  bool has(const std::string& name) const { return session_.store().contains(key(name)); }
  std::string value(const std::string& name) const { return session_.store().get(key(name)); }

  StoreSession& session_;
  std::string prefix_;
};

}  // namespace

std::string run_once_per_node(
    const DistributedContext& ranks, const std::string& what,
    const std::function<std::string(const std::function<void(const std::string&)>&)>& work,
    StoreSessionOptions options) {
  StoreSession session(ranks, what, options);
  const NodeWork node(session, ranks.node);
  try {
    std::string result;
    if (ranks.local_rank == 0) {
      node.publish("rank", std::to_string(ranks.rank));
      result = work([&](const std::string& text) { node.publish("progress", text); });
      node.publish("result", result);
    } else {
      result = node.wait();
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
