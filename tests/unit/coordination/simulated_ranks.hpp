#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordination/key_value_store.hpp"
#include "net/deadline.hpp"

namespace lockstep::testing {

/// Ranks as threads of which one runs at a time, over a store in memory and a clock that is moved by hand. A
/// rank gives way only where it waits; the ready rank with the lowest number goes on. When all wait, the
/// clock moves to the first of their deadlines. So every run of the same ranks is the same.
class SimulatedRanks {
 public:
  using Milliseconds = std::chrono::milliseconds;

  explicit SimulatedRanks(int size) : ranks_(static_cast<std::size_t>(size)) {}

  /// Runs `body(rank)` for each rank until all have ended.
  void run(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      threads.emplace_back([this, rank, &body] {
        wait_for_turn(rank);
        body(rank);
        const std::lock_guard lock(mutex_);
        of(rank).state = State::ended;
        pass_on();
      });
    }
    {
      const std::lock_guard lock(mutex_);
      pass_on();
    }
    for (auto& thread : threads) thread.join();
  }

  /// The time since the beginning.
  Milliseconds time() const { return time_; }
  net::Deadline now() const { return net::Deadline(time_); }
  void sleep_until(int rank, Milliseconds time) { give_way(rank, std::nullopt, time); }

  /// The store as `rank` uses it.
  std::shared_ptr<KeyValueStore> store(int rank);

 private:
  enum class State { ready, waits, runs, ended };
  struct Rank {
    State state = State::ready;
    std::optional<std::string> key;
    Milliseconds until{0};
  };
  class Handle;

  Rank& of(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

  /// Waits for the key or the time.
  void give_way(int rank, std::optional<std::string> key, Milliseconds until) {
    {
      const std::lock_guard lock(mutex_);
      of(rank) = {State::waits, std::move(key), until};
      pass_on();
    }
    wait_for_turn(rank);
  }

  void wait_for_turn(int rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return of(rank).state == State::runs; });
  }

  bool is_ready(const Rank& rank) const {
    if (rank.state == State::ready) return true;
    return rank.state == State::waits && (rank.until <= time_ || (rank.key && values_.contains(*rank.key)));
  }

  /// Lets the next rank run. The caller holds the mutex and no longer runs.
  void pass_on() {
    for (;;) {
      std::optional<Milliseconds> next;
      for (Rank& rank : ranks_) {
        if (is_ready(rank)) {
          rank.state = State::runs;
          return changed_.notify_all();
        }
        if (rank.state == State::waits) next = std::min(next.value_or(rank.until), rank.until);
      }
      if (!next) return;
      time_ = *next;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::map<std::string, std::string> values_;
  Milliseconds time_{0};
};

class SimulatedRanks::Handle final : public KeyValueStore {
 public:
  Handle(SimulatedRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}

  void set(const std::string& key, const std::string& value) override { ranks_.values_[key] = value; }
  std::string get(const std::string& key) override { return ranks_.values_.at(key); }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    auto& value = ranks_.values_.emplace(key, "0").first->second;
    const std::int64_t sum = std::stoll(value) + amount;
    value = std::to_string(sum);
    return sum;
  }
  void append(const std::string& key, const std::string& value) override { ranks_.values_[key] += value; }
  std::string set_if_absent(const std::string& key, const std::string& value) override {
    return ranks_.values_.emplace(key, value).first->second;
  }
  bool contains(const std::string& key) override { return ranks_.values_.contains(key); }
  bool wait(const std::string& key, Milliseconds limit) override {
    if (!contains(key)) ranks_.give_way(rank_, key, ranks_.time() + limit);
    return contains(key);
  }
  bool erase(const std::string& key) override { return ranks_.values_.erase(key) > 0; }

 private:
  SimulatedRanks& ranks_;
  int rank_;
};

inline std::shared_ptr<KeyValueStore> SimulatedRanks::store(int rank) {
  return std::make_shared<Handle>(*this, rank);
}

}  // namespace lockstep::testing
