#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "broadcast_tensors.hpp"
#include "core/running_clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/progress_bar.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/core/runtime/stop_signals.hpp"
#include "lockstep/train/determinism.hpp"
#include "lockstep/train/process_execution.hpp"
#include "named_barrier.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice = std::chrono::seconds(1);
constexpr int kSlicesBetweenMessages = 30;
/// How long a failed main process waits until the others have received its error.
constexpr milliseconds kFarewell = std::chrono::seconds(5);
constexpr char kDone[] = "done";

void say(int rank, const std::string& text) {
  std::cerr << fmt::format("lockstep [rank {}]: {}\n", rank, text) << std::flush;
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
    // The other ranks also see that the store is lost, and report it themselves.
    say(place_.rank, "the processes waiting in " + place_.name + " could not be released: " + error.what());
  }
}

void MainProcessFirst::fail(const std::string& text) {
  try {
    release(text);
    wait_for_others(kFarewell);
  } catch (const CommunicationError& error) {
    // The user must see this process's failure, not that the others could not be notified.
    say(place_.rank, "the processes waiting in " + place_.name + " could not be notified: " + error.what());
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
    say(place_.rank,
        fmt::format("waiting in {} for rank {} since {} s", place_.name, place_.main_rank, slices));
  }
  const std::string outcome = store_.get(place_.name, kSlice);
  if (store_.add(place_.name + "/passed", 1) == place_.members - 1)
    store_.set(place_.name + "/all_passed", "1");
  if (outcome == kDone) return;
  throw RemoteError(fmt::format("rank {} ends because rank {} failed in {}: {}", place_.rank,
                                place_.main_rank, place_.name, outcome),
                    place_.main_rank);
}

void MainProcessFirst::wait_for_others(milliseconds limit) const {
  if (place_.members == 1) return;
  for (std::int64_t slice = 1; !store_.wait(place_.name + "/all_passed", kSlice); ++slice) {
    // A process that was told to stop may be the last one left.
    const auto patience = StopSignals::received() == 0 ? limit : std::min(limit, kFarewell);
    const auto slices = std::max<std::int64_t>(patience / kSlice, 1);
    const std::string passed = fmt::format("{} of {} other processes have come",
                                           store_.add(place_.name + "/passed", 0), place_.members - 1);
    if (slice >= slices)
      return say(place_.rank, fmt::format("leaving {} although only {}", place_.name, passed));
    if (slice % kSlicesBetweenMessages == 0)
      say(place_.rank, fmt::format("waiting at the end of {} since {} s: {}", place_.name, slice, passed));
  }
}

}  // namespace lockstep

namespace lockstep::train {
namespace {

using std::chrono::milliseconds;
using Clock = RunningClock;

constexpr milliseconds kLongestSlice = std::chrono::seconds(1);
/// How long a failed rank waits for the others to read its error: it may host the store.
constexpr milliseconds kTimeToHear = std::chrono::seconds(2);
constexpr const char* kFailure = "failure";

std::string place_key(int rank) { return fmt::format("place/{}", rank); }

/// Splits a number from the text after the first line break.
std::pair<int, std::string> split_at_line(const std::string& text) {
  const auto end = text.find('\n');
  return {std::stoi(text.substr(0, end)), text.substr(end + 1)};
}

std::string seconds_text(milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

NamedBarrier::NamedBarrier(const Store& store, const ProcessGroup& group, milliseconds warn_after)
    : store_(store),
      rank_(group.rank()),
      size_(group.size()),
      timeout_(group.timeout()),
      warn_after_(warn_after),
      barrier_(store.with_prefix("barriers"), comm::GroupInfo::whole(rank_, size_)) {}

void NamedBarrier::wait(const std::string& name) {
  throw_if_failed(name);
  if (size_ == 1) return;
  const std::string key = fmt::format("name/{}", ++number_);
  check_name(key, name);
  auto next_report = warn_after_;
  const auto probe = [&](const std::vector<int>& missing, milliseconds waited) -> std::string {
    throw_if_failed(name);
    if (waited < next_report) return "";
    next_report += warn_after_;
    std::cerr << fmt::format("lockstep: {}\n", report(name, missing, waited)) << std::flush;
    return "";
  };
  try {
    barrier_.arrive_and_wait(timeout_, probe, std::min(kLongestSlice, warn_after_), name);
  } catch (const TimeoutError& error) {
    throw TimeoutError(report(name, error.missing_ranks(), timeout_) + ". Gave up.", error.missing_ranks());
  }
  store_.set(place_key(rank_), fmt::format("on its way after '{}'", name));
  if (rank_ == 0) store_.erase(key);
}

/// If the names differ, ranks are at different places of the program.
void NamedBarrier::check_name(const std::string& key, const std::string& name) const {
  store_.set(place_key(rank_), fmt::format("waiting at '{}'", name));
  const auto [first, wanted] = split_at_line(store_.set_if_absent(key, fmt::format("{}\n{}", rank_, name)));
  if (wanted == name) return;
  const std::string text = fmt::format(
      "rank {} is at the barrier '{}', but rank {} is at '{}': all ranks must pass the same barriers in the "
      "same order",
      rank_, name, first, wanted);
  report_failure(text);
  throw CommunicationError(text);
}

void NamedBarrier::throw_if_failed(const std::string& name) const {
  if (size_ == 1 || !store_.contains(kFailure)) return;
  const auto [rank, text] = split_at_line(store_.get(kFailure, kLongestSlice));
  if (rank == rank_) return;
  store_.add("heard", 1);
  throw RemoteError(fmt::format("rank {} ends at '{}' because rank {} failed: {}", rank_, name, rank, text),
                    rank);
}

std::string NamedBarrier::report(const std::string& name, const std::vector<int>& missing,
                                 milliseconds waited) const {
  std::string text = fmt::format("rank {} waits at '{}' since {} for {}", rank_, name, seconds_text(waited),
                                 comm::list_ranks(missing));
  for (const int rank : missing) {
    const bool known = store_.contains(place_key(rank));
    text += fmt::format("; rank {} is {}", rank,
                        known ? store_.get(place_key(rank), kLongestSlice)
                              : std::string("not known to have reached a barrier"));
  }
  return text;
}

void NamedBarrier::report_failure(const std::string& text) const {
  if (size_ == 1) return;
  try {
    store_.set_if_absent(kFailure, fmt::format("{}\n{}", rank_, text));
    const auto start = Clock::now();
    constexpr milliseconds kPause{50};
    while (Clock::now() - start < kTimeToHear && store_.add("heard", 0) < size_ - 1)
      store_.wait("never set", kPause);
  } catch (const CommunicationError& error) {
    std::cerr << fmt::format("lockstep: the other ranks could not be notified of a failure: {}\n",
                             error.what())
              << std::flush;
  }
}

}  // namespace lockstep::train

namespace lockstep {

struct ProcessExecution::State {
  State(const World& the_world, const ProcessGroup& the_group, std::chrono::milliseconds barrier_warning)
      : world(the_world),
        group(the_group),
        store(the_group.new_namespace()),
        barrier(store.with_prefix("named_barrier"), the_group, barrier_warning) {}

  World world;
  ProcessGroup group;
  Store store;
  train::NamedBarrier barrier;
  std::int64_t runs = 0;
  bool trigger = false;
};

ProcessExecution::ProcessExecution(const World& world, const ProcessGroup& group,
                                   std::chrono::milliseconds barrier_warning)
    : state_(std::make_shared<State>(world, group, barrier_warning)) {}

int ProcessExecution::rank_of_this() const noexcept { return state_->world.rank; }
int ProcessExecution::local_rank_of_this() const noexcept { return state_->world.local_rank; }
int ProcessExecution::size_of_world() const noexcept { return state_->world.world_size; }

MainProcessFirst ProcessExecution::first_of_run() const {
  return {state_->store,
          {.name = fmt::format("on_main_process #{}", ++state_->runs),
           .rank = state_->world.rank,
           .main_rank = 0,
           .members = state_->world.world_size,
           .timeout = state_->group.timeout()}};
}

std::string ProcessExecution::shared(const std::string* value) const {
  return state_->group.broadcast_object(value == nullptr ? std::string() : *value);
}

nlohmann::json ProcessExecution::shared(const nlohmann::json* value) const {
  return state_->group.broadcast_object(value == nullptr ? nlohmann::json() : *value);
}

at::Tensor ProcessExecution::shared(const at::Tensor* value) const {
  TensorMap tensors;
  if (value != nullptr) tensors.emplace("value", *value);
  return train::broadcast_tensors(state_->group, tensors).at("value");
}

TensorMap ProcessExecution::shared(const TensorMap* value) const {
  return train::broadcast_tensors(state_->group, value == nullptr ? TensorMap{} : *value);
}

void ProcessExecution::write_out(const std::string& line) {
  ProgressBar::clear_line();
  std::cout << line << std::flush;
}

void ProcessExecution::set_trigger() { state_->trigger = true; }

bool ProcessExecution::check_trigger() {
  const bool mine = std::exchange(state_->trigger, false);
  if (state_->group.size() == 1) return mine;
  const auto options = at::TensorOptions(state_->group.object_device()).dtype(at::kInt);
  const at::Tensor flag = at::full({1}, mine ? 1 : 0, options);
  state_->group.all_reduce(flag, ReduceOp::max);
  return flag.item<int>() != 0;
}

void ProcessExecution::set_seed(std::uint64_t seed, bool device_specific, bool deterministic) {
  at::manual_seed(seed + (device_specific ? static_cast<std::uint64_t>(rank_of_this()) : 0));
  if (deterministic) use_deterministic_operations();
}

void ProcessExecution::wait_for_everyone_at(const std::string& name) const { state_->barrier.wait(name); }

void ProcessExecution::report_failure(const std::string& text) const { state_->barrier.report_failure(text); }

}  // namespace lockstep
