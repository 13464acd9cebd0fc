#include "lockstep/train/main_process_first.hpp"

#include <algorithm>
#include <exception>
#include <iostream>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/core/runtime/stop_signals.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice = std::chrono::seconds(1);
constexpr int kSlicesBetweenMessages = 30;
/// A main process that failed ends soon, but the others must hear of it first.
constexpr milliseconds kFarewell = std::chrono::seconds(5);
constexpr char kDone[] = "done";

void say(int rank, const std::string& text) {
  std::cerr << "lockstep [rank " + std::to_string(rank) + "]: " + text + "\n" << std::flush;
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
      release(kDone);
      wait_for_others(place_.timeout);
    }
  } catch (const std::exception& error) {
    // The others find the store gone as well, and say so themselves.
    say(place_.rank, "the processes waiting in " + place_.name + " could not be released: " + error.what());
  }
}

void MainProcessFirst::fail(const std::string& text) {
  try {
    release(text);
    wait_for_others(kFarewell);
  } catch (const CommunicationError& error) {
    // What this process fails of is what its user must see, and not that the others could not be told.
    say(place_.rank, "the processes waiting in " + place_.name + " could not be told: " + error.what());
  }
}

void MainProcessFirst::release(const std::string& outcome) {
  released_ = true;
  if (place_.members > 1) store_.set(place_.name, outcome);
}

void MainProcessFirst::wait_for_main() const {
  const Heartbeat::Waiting beat(process_heartbeat(), place_.name, 0);
  for (int slices = 1; !store_.wait(place_.name, kSlice); ++slices) {
    if (slices % kSlicesBetweenMessages != 0) continue;
    say(place_.rank, "waiting in " + place_.name + " for rank " + std::to_string(place_.main_rank) +
                         " since " + std::to_string(slices) + " s");
  }
  const std::string outcome = store_.get(place_.name, kSlice);
  if (store_.add(place_.name + "/passed", 1) == place_.members - 1)
    store_.set(place_.name + "/all_passed", "1");
  if (outcome == kDone) return;
  throw RemoteError("rank " + std::to_string(place_.rank) + " ends because rank " +
                        std::to_string(place_.main_rank) + " failed in " + place_.name + ": " + outcome,
                    place_.main_rank);
}

void MainProcessFirst::wait_for_others(milliseconds limit) const {
  if (place_.members == 1) return;
  for (std::int64_t slice = 1; !store_.wait(place_.name + "/all_passed", kSlice); ++slice) {
    // A process that was told to stop may be the last one left.
    const auto patience = StopSignals::received() == 0 ? limit : std::min(limit, kFarewell);
    const auto slices = std::max<std::int64_t>(patience / kSlice, 1);
    const std::string passed = std::to_string(store_.add(place_.name + "/passed", 0)) + " of " +
                               std::to_string(place_.members - 1) + " other processes have come";
    if (slice >= slices) return say(place_.rank, "leaving " + place_.name + " although only " + passed);
    if (slice % kSlicesBetweenMessages == 0) {
      say(place_.rank,
          "waiting at the end of " + place_.name + " since " + std::to_string(slice) + " s: " + passed);
    }
  }
}

}  // namespace lockstep
