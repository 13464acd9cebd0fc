#include "comm/store_barrier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

Milliseconds left_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
  return std::max(left, Milliseconds(1));
}

/// How long a rank that waits does not probe the others.
constexpr Milliseconds kSlice{1000};

/// What a probe found.
struct CannotCome {
  std::string why;
};

Milliseconds since(Clock::time_point begun) {
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - begun);
}

std::string name_of(std::int64_t meeting) { return fmt::format("barrier/{}/", meeting); }

/// Those of `members` whose places a comma-separated list does not name.
std::vector<int> absent(const std::string& arrived, const std::vector<int>& members) {
  std::vector<bool> came(members.size(), false);
  std::istringstream list(arrived);
  for (std::string rank; std::getline(list, rank, ',');)
    came.at(static_cast<std::size_t>(std::stoi(rank))) = true;
  std::vector<int> missing;
  for (std::size_t place = 0; place < members.size(); ++place) {
    if (!came[place]) missing.push_back(members[place]);
  }
  return missing;
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  const std::span<const int> shown(ranks.data(), std::min(ranks.size(), kShown));
  const std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(shown, ", "));
  return ranks.size() > kShown ? fmt::format("{} and {} more", text, ranks.size() - kShown) : text;
}

StoreBarrier::StoreBarrier(Store store, GroupInfo membership)
    : store_(std::move(store)), info_(std::move(membership)) {}

std::string StoreBarrier::who() const { return fmt::format("{}: barrier #{}", info_.who, barriers_); }

void StoreBarrier::arrive_and_wait(Milliseconds timeout, const Probe& probe) {
  if (info_.size() == 1) return;
  ++barriers_;
  const Heartbeat::Waiting beat(process_heartbeat(), "barrier", static_cast<std::uint64_t>(barriers_));
  try {
    meet(timeout, probe);
  } catch (const TimeoutError&) {
    throw;
  } catch (const CannotCome& loss) {
    throw CommunicationError(who() + " failed: " + loss.why);
  } catch (const CommunicationError& error) {
    throw CommunicationError(
        who() +
        " failed: the job's store is gone. The process that hosts it (rank 0, or the launcher) has "
        "ended or cannot be reached: see what it did last. " +
        error.what());
  }
}

void StoreBarrier::release(const Store& store) {
  for (const auto* key : {"done", "over"}) store.set(name_of(1) + key, "1");
}

void StoreBarrier::meet(Milliseconds timeout, const Probe& probe) {
  const auto deadline = Clock::now() + timeout;
  const std::string meeting = name_of(barriers_);
  store_.append(meeting + "arrived", fmt::format("{},", info_.rank));
  if (store_.add(meeting + "count", 1) == info_.size()) {
    store_.set(meeting + "done", "1");
    forget(barriers_ - 1);
  } else if (!wait_for_all(meeting, deadline, probe)) {
    name_the_missing(meeting, timeout);
  }
  acknowledge(meeting, deadline, probe);
}

bool StoreBarrier::wait_for_all(const std::string& meeting, Deadline deadline, const Probe& probe) const {
  const std::string done = meeting + "done";
  if (!probe) return store_.wait(done, left_until(deadline));
  for (const auto begun = Clock::now();;) {
    if (store_.wait(done, std::min(left_until(deadline), kSlice))) return true;
    if (left_until(deadline) <= Milliseconds(1)) return false;
    const std::string why = probe_missing(probe, meeting, since(begun));
    // The last one may have come, and left again, while this rank looked.
    if (!why.empty() && !store_.contains(done)) throw CannotCome{why};
  }
}

std::string StoreBarrier::probe_missing(const Probe& probe, const std::string& meeting,
                                        Milliseconds waited) const {
  std::vector<int> absentees;
  try {
    absentees = missing(meeting);
  } catch (const TimeoutError&) {
    return "";  // The store is busy: the next probe may find more.
  }
  // All have said that they come: one may have ended before it was counted.
  return probe(absentees.empty() ? others() : absentees, waited);
}

std::vector<int> StoreBarrier::others() const {
  std::vector<int> ranks = info_.names;
  ranks.erase(ranks.begin() + info_.rank);
  return ranks;
}

std::vector<int> StoreBarrier::missing(const std::string& meeting) const {
  return absent(store_.get(meeting + "arrived", std::chrono::seconds(1)), info_.names);
}

void StoreBarrier::acknowledge(const std::string& meeting, Deadline deadline, const Probe& probe) const {
  if (info_.rank != 0) {
    if (store_.add(meeting + "seen", 1) == info_.size() - 1) store_.set(meeting + "over", "1");
    return;
  }
  // All have arrived; a rank that dies between its arrival and here is found by the next operation.
  const auto begun = Clock::now();
  while (!store_.wait(meeting + "over", std::min(left_until(deadline), kSlice))) {
    const bool over = left_until(deadline) <= Milliseconds(1);
    if (over || (probe && !probe(others(), since(begun)).empty())) return;
  }
}

/// When all have arrived at one meeting, all have left the one before.
void StoreBarrier::forget(std::int64_t meeting) const {
  if (meeting == 0) return;
  for (const auto* key : {"arrived", "count", "done", "seen", "over"}) store_.erase(name_of(meeting) + key);
}

void StoreBarrier::name_the_missing(const std::string& meeting, Milliseconds timeout) const {
  const auto absentees = missing(meeting);
  if (absentees.empty()) return;  // The last one came while the time ran out.
  throw TimeoutError(
      fmt::format(
          "{} timed out after {} ms: {} did not come. See what {} did last: it may be slow, stuck, dead, or "
          "may not call the barrier at all",
          who(), timeout.count(), list_ranks(absentees), absentees.size() == 1 ? "that rank" : "those ranks"),
      absentees);
}

}  // namespace lockstep::comm
