#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <iostream>

#include "comm/group_key_value_store.hpp"
#include "coordination/message_timer.hpp"
#include "coordination/rank_session.hpp"
#include "core/runtime/stop_signals.hpp"
#include "core/time.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/train/process_execution.hpp"
#include "train/released_place.hpp"

namespace lockstep {
namespace {

using coordination::MessageTimer;
using coordination::Milliseconds;
using coordination::RankSession;
using train::kReleased;

/// The other processes have gone on, or read why they cannot.
constexpr const char* kPassed = "passed";

/// After all have passed. A training does this at each checkpoint: its store must not grow with them.
void erase_points(const RankSession& session) {
  try {
    session.erase(kReleased);
    session.erase(kPassed);
  } catch (const CommunicationError&) {
    // The store's host has ended, and its keys with it.
  }
}

void say(int rank, const std::string& text) {
  std::cerr << fmt::format("lockstep [rank {}]: {}\n", rank, text) << std::flush;
}

RankSession session_of(const Store& store, const MainProcessFirstPlace& place) {
  GroupInfo members = GroupInfo::whole(0, place.members);
  members.rank = place.rank;
  return {comm::key_value_store(store), place.name + "/", std::move(members)};
}

}  // namespace

MainProcessFirst::MainProcessFirst(const Store& store, MainProcessFirstPlace place)
    : store_(store), place_(std::move(place)), exceptions_before_(std::uncaught_exceptions()) {
  if (!is_main()) wait_for_main();
}

MainProcessFirst::~MainProcessFirst() {
  if (!is_main() || released_) return;
  try {
    if (std::uncaught_exceptions() > exceptions_before_) {
      fail("it left by an exception; see its own output");
    } else {
      release();
      wait_for_others(place_.timeout);
    }
  } catch (const std::exception& error) {
    // The other ranks also see that the store is lost, and report it themselves.
    say(place_.rank, "the processes waiting in " + place_.name + " could not be released: " + error.what());
  }
}

void MainProcessFirst::fail(const std::string& text) {
  try {
    if (place_.members > 1) session_of(store_, place_).post_failure(text);
    release();
    wait_for_others(coordination::WaitTimes{}.farewell);
  } catch (const CommunicationError& error) {
    // The user must see this process's failure, not that the others could not be notified.
    say(place_.rank, "the processes waiting in " + place_.name + " could not be notified: " + error.what());
  }
}

void MainProcessFirst::release() {
  released_ = true;
  if (place_.members > 1) session_of(store_, place_).release(kReleased);
}

void MainProcessFirst::wait_for_main() const {
  const Heartbeat::Waiting beat(process_heartbeat(), place_.name, 0);
  const RankSession session = session_of(store_, place_);
  MessageTimer timer(session.times().message);
  const auto say_so = [&](Milliseconds waited) {
    if (timer.is_due(waited)) {
      say(place_.rank, fmt::format("has been waiting in {} for rank {} for {}", place_.name, place_.main_rank,
                                   format_whole_seconds(waited)));
    }
    return true;
  };
  session.await(kReleased, {.look = session.times().look, .go_on = say_so});
  const auto failure = session.failure();
  session.count(kPassed, place_.members - 1);
  if (!failure) return;
  throw RemoteError(fmt::format("rank {} ends because rank {} failed in {}: {}", place_.rank,
                                place_.main_rank, place_.name, failure->text),
                    place_.main_rank);
}

void MainProcessFirst::wait_for_others(std::chrono::milliseconds limit) const {
  if (place_.members == 1) return;
  const RankSession session = session_of(store_, place_);
  MessageTimer timer(session.times().message);
  const auto how_many = [&] {
    return fmt::format("{} of {} other processes have arrived", session.arrived(kPassed), place_.members - 1);
  };
  const auto go_on = [&](Milliseconds waited) {
    // A process that was told to stop may be the last one left.
    const auto patience = StopSignals::received() == 0 ? limit : std::min(limit, session.times().farewell);
    if (waited >= patience) {
      say(place_.rank, fmt::format("leaving {} although only {}", place_.name, how_many()));
      return false;
    }
    if (timer.is_due(waited)) {
      say(place_.rank, fmt::format("has been waiting at the end of {} for {}: {}", place_.name,
                                   format_whole_seconds(waited), how_many()));
    }
    return true;
  };
  if (session.await(kPassed, {.look = std::min(session.times().look, limit), .go_on = go_on}))
    erase_points(session);
}

}  // namespace lockstep
