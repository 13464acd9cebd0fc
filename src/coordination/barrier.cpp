#include "coordination/barrier.hpp"

#include <fmt/format.h>

#include "coordination/connection_lost.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep::coordination {
namespace {

std::string barrier_point(std::int64_t barrier) { return fmt::format("barrier/{}", barrier); }
/// Where the ranks other than 0 say that they need the store no more.
std::string passed_point(std::int64_t barrier) { return barrier_point(barrier) + "/passed"; }

}  // namespace

std::string Barrier::who() const { return fmt::format("{}: barrier #{}", session_.members().who, barriers_); }

void Barrier::arrive_and_wait(Milliseconds timeout, const Probe& probe, Milliseconds probe_interval,
                              std::string_view activity) {
  if (session_.members().size() == 1) return;
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

void Barrier::release(const RankSession& session) {
  session.release(barrier_point(1));
  session.release(passed_point(1));
}

void Barrier::run(Milliseconds timeout, const Probe& probe, Milliseconds probe_interval) {
  const auto deadline = session_.now() + timeout;
  const std::string point = barrier_point(barriers_);
  const auto can_complete = [&](Milliseconds waited) {
    const std::string why = probe_missing(probe, point, waited);
    // The last rank may have arrived, and left again, in the meantime.
    if (!why.empty() && !session_.is_complete(point)) throw CommunicationError(who() + " failed: " + why);
    return true;
  };
  RankSession::Wait wait{.deadline = deadline, .look = probe_interval};
  if (probe) wait.go_on = can_complete;
  if (session_.arrive(point)) {
    // When all have arrived at a barrier, all have left the one before it.
    if (barriers_ > 1) session_.erase(barrier_point(barriers_ - 1));
    if (barriers_ > 1) session_.erase(passed_point(barriers_ - 1));
  } else if (!session_.await(point, wait)) {
    const auto absentees = missing(point);
    if (!absentees.empty()) {  // Otherwise the last one arrived just now.
      throw TimeoutError(fmt::format("{} timed out after {} ms: {} did not arrive. See what {} did last: it "
                                     "may be slow, stuck or dead, or it may never call the barrier",
                                     who(), timeout.count(), list_ranks(absentees),
                                     absentees.size() == 1 ? "that rank" : "those ranks"),
                         absentees);
    }
  }
  leave_last(passed_point(barriers_), deadline, probe);
}

std::string Barrier::probe_missing(const Probe& probe, const std::string& point, Milliseconds waited) const {
  std::vector<int> absentees;
  try {
    absentees = missing(point);
  } catch (const TimeoutError&) {
    return "";  // The store is busy: the next probe may find more.
  }
  // All have registered, but one may have ended before it was counted.
  return probe(absentees.empty() ? others() : absentees, waited);
}

std::vector<int> Barrier::others() const {
  std::vector<int> ranks = session_.members().names;
  ranks.erase(ranks.begin() + session_.members().rank);
  return ranks;
}

std::vector<int> Barrier::missing(const std::string& point) const {
  std::vector<int> ranks = session_.missing(point);
  for (int& rank : ranks) rank = session_.members().name(rank);
  return ranks;
}

void Barrier::leave_last(const std::string& point, net::Deadline deadline, const Probe& probe) const {
  if (session_.members().rank != 0) {
    session_.count(point, session_.members().size() - 1);
    return;
  }
  // All have arrived. If a rank dies between its arrival and here, the next operation detects it.
  const auto all_can_leave = [&](Milliseconds waited) { return !probe || probe(others(), waited).empty(); };
  session_.await(point, {.deadline = deadline, .look = session_.times().look, .go_on = all_can_leave});
}

}  // namespace lockstep::coordination
