#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordination/group_info.hpp"
#include "coordination/key_value_store.hpp"
#include "coordination/wait_times.hpp"
#include "net/deadline.hpp"

namespace lockstep::coordination {

/// Why a rank failed, as the others read it.
struct Failure {
  int rank = -1;
  std::string host;
  std::string text;
};

/// How the ranks of a group meet and part through a store: the one protocol behind barriers, joining, waiting
/// for a main process, and shared work. It works before there are connections between ranks and after they
/// are lost.
///
/// Everything is made of three things, each a few keys under the session's prefix:
/// - A *point*, at which ranks arrive. The rank that completes the count sets a key, for which the others
///   wait with a single request. A list says who has arrived, for messages and probes.
/// - The *failure*: a list of JSON lines to which failed ranks append, of which the first counts. Appending
///   needs no answer, so it takes no time where the store is gone. It does not end the others' waits by
///   itself: they look for it.
/// - *Staying*: a rank that may host the store leaves last. The others arrive at a point as their last
///   request (`count`), and it waits for that point: after a success until all have passed, after a failure
///   until all have read it, at most `farewell`.
///
/// Invariant: no rank needs the store after it has arrived at the last point, so that its host may end then.
///
/// One thread at a time, except for the failure's methods and key(), which any thread may call. Throws what
/// the store throws.
class RankSession {
 public:
  using Now = std::function<net::Deadline()>;

  /// All ranks of `members` use the same `prefix`, which nobody else uses. *Local*. `now`: the clock.
  RankSession(std::shared_ptr<KeyValueStore> store, std::string prefix, GroupInfo members,
              WaitTimes times = {}, Now now = &net::Clock::now);

  KeyValueStore& store() const { return *store_; }
  const GroupInfo& members() const { return members_; }
  const WaitTimes& times() const { return times_; }
  std::string key(const std::string& name) const { return prefix_ + name; }
  net::Deadline now() const { return now_(); }

  // ---- Points. *Collective*; only await() waits for other ranks.

  /// Arrives at a point. True for the rank that completes it.
  bool arrive(const std::string& point) const;
  /// The same without a name in the list of arrivals, at a point of `expected` ranks.
  bool count(const std::string& point, int expected) const;
  /// Completes a point for all that wait there or come later.
  void release(const std::string& point) const;

  struct Wait {
    net::Deadline deadline = net::Deadline::max();
    /// Between two calls of `go_on`.
    Milliseconds look{1'000};
    /// Called while the point is incomplete; false ends the wait, and so does what it throws. Without it the
    /// wait is a single request.
    std::function<bool(Milliseconds waited)> go_on = nullptr;
  };
  /// Waits until the point is complete; false at the deadline, or when `go_on` ends the wait.
  bool await(const std::string& point, const Wait& wait) const;
  bool is_complete(const std::string& point) const;
  /// The members, counted from 0, that have not arrived.
  std::vector<int> missing(const std::string& point) const;
  /// How many have arrived.
  int arrived(const std::string& point) const;
  /// Removes a point that no rank needs any more.
  void erase(const std::string& point) const;

  // ---- Failure. *Local*.

  /// Tells the others why this rank fails; the first failure counts. Waits for no answer.
  void post_failure(const std::string& text) const;
  /// The first failure of any rank, as far as is known now.
  std::optional<Failure> failure() const;
  /// The same, posted by now or within `limit`: a single request.
  std::optional<Failure> await_failure(Milliseconds limit) const;
  /// The first failure, but none if it is this rank's own; the failed rank sees that this one has read it.
  std::optional<Failure> read_failure() const;
  /// Stays, after post_failure(), until all others have read the first failure or posted their own, at most
  /// `times().farewell`; `go_on` may end it before.
  void stay_until_read(const std::function<bool(Milliseconds waited)>& go_on = nullptr) const;

 private:
  Milliseconds left_until(net::Deadline deadline) const;
  void count_as_read() const;

  std::shared_ptr<KeyValueStore> store_;
  std::string prefix_;
  GroupInfo members_;
  WaitTimes times_;
  Now now_;
  std::shared_ptr<std::atomic<bool>> has_read_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace lockstep::coordination
