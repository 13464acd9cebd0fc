#include "meetings.hpp"

#include <algorithm>
#include <iostream>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep::train {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLongestSlice = std::chrono::seconds(1);
/// How long a rank that fails waits for others to hear of it: it may host the store.
constexpr milliseconds kTimeToHear = std::chrono::seconds(2);
constexpr const char* kFailure = "failure";

std::string place_key(int rank) { return "place/" + std::to_string(rank); }

std::string rank_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

/// A number and what follows it after a line end.
std::pair<int, std::string> split_at_line(const std::string& text) {
  const auto end = text.find('\n');
  return {std::stoi(text.substr(0, end)), text.substr(end + 1)};
}

std::string seconds_text(milliseconds time) {
  std::ostringstream text;
  text << static_cast<double>(time.count()) / 1000 << " s";
  return text.str();
}

}  // namespace

void Meetings::wait(const std::string& name) {
  const std::string meeting = "meeting/" + std::to_string(++number_);
  throw_if_failed(name);
  if (place_.size == 1) return;
  const Heartbeat::Waiting beat(process_heartbeat(), name, static_cast<std::uint64_t>(number_));
  arrive(meeting, name);
  wait_for_all(meeting, name);
  store_.set(place_key(place_.rank), "on its way after '" + name + "'");
  leave(meeting);
}

/// Every rank's n-th barrier must have the same name: otherwise they are at different places of the program.
void Meetings::arrive(const std::string& meeting, const std::string& name) const {
  store_.set(place_key(place_.rank), "waiting at '" + name + "'");
  const std::string own = std::to_string(place_.rank) + "\n" + name;
  const auto [first, wanted] = split_at_line(store_.set_if_absent(meeting + "/name", own));
  if (wanted != name) {
    const std::string text = "rank " + std::to_string(place_.rank) + " came to the barrier '" + name +
                             "', but rank " + std::to_string(first) + " came to '" + wanted +
                             "': all ranks must pass the same barriers in the same order";
    report_failure(text);
    throw CommunicationError(text);
  }
  store_.append(meeting + "/here", " " + std::to_string(place_.rank));
  if (store_.add(meeting + "/arrived", 1) == place_.size) store_.set(meeting + "/all", "1");
}

void Meetings::wait_for_all(const std::string& meeting, const std::string& name) const {
  const auto start = Clock::now();
  const auto slice = std::min(kLongestSlice, place_.warn_after);
  auto next_report = place_.warn_after;
  while (!store_.wait(meeting + "/all", slice)) {
    throw_if_failed(name);
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    if (waited >= place_.timeout)
      throw TimeoutError(report(meeting, name, waited) + ". Gave up.", missing(meeting));
    if (waited < next_report) continue;
    next_report += place_.warn_after;
    std::cerr << "lockstep: " + report(meeting, name, waited) + "\n" << std::flush;
  }
}

void Meetings::throw_if_failed(const std::string& name) const {
  if (place_.size == 1 || !store_.contains(kFailure)) return;
  const auto [rank, text] = split_at_line(store_.get(kFailure, kLongestSlice));
  if (rank == place_.rank) return;
  store_.add("heard", 1);
  throw RemoteError("rank " + std::to_string(place_.rank) + " ends at '" + name + "' because rank " +
                        std::to_string(rank) + " failed: " + text,
                    rank);
}

std::vector<int> Meetings::missing(const std::string& meeting) const {
  std::vector<bool> here(static_cast<std::size_t>(place_.size), false);
  std::istringstream ranks(store_.get(meeting + "/here", kLongestSlice));
  for (std::size_t rank = 0; ranks >> rank;) here.at(rank) = true;
  std::vector<int> result;
  for (int rank = 0; rank < place_.size; ++rank) {
    if (!here[static_cast<std::size_t>(rank)]) result.push_back(rank);
  }
  return result;
}

std::string Meetings::report(const std::string& meeting, const std::string& name, milliseconds waited) const {
  const auto absent = missing(meeting);
  std::string text = "rank " + std::to_string(place_.rank) + " waits at '" + name + "' since " +
                     seconds_text(waited) + " for " + rank_text(absent);
  for (const int rank : absent) {
    const bool known = store_.contains(place_key(rank));
    text += "; rank " + std::to_string(rank) + " is " +
            (known ? store_.get(place_key(rank), kLongestSlice) : "not known to have met anybody yet");
  }
  return text;
}

/// The last one puts the keys away.
void Meetings::leave(const std::string& meeting) const {
  if (store_.add(meeting + "/left", 1) != place_.size) return;
  for (const char* part : {"/name", "/here", "/arrived", "/all", "/left"}) store_.erase(meeting + part);
}

void Meetings::report_failure(const std::string& text) const {
  if (place_.size == 1) return;
  try {
    store_.set_if_absent(kFailure, std::to_string(place_.rank) + "\n" + text);
    const auto start = Clock::now();
    constexpr milliseconds kPause{50};
    while (Clock::now() - start < kTimeToHear && store_.add("heard", 0) < place_.size - 1)
      store_.wait("nobody sets this", kPause);
  } catch (const CommunicationError& error) {
    std::cerr << std::string("lockstep: the other ranks could not be told of a failure: ") + error.what() +
                     "\n"
              << std::flush;
  }
}

}  // namespace lockstep::train
