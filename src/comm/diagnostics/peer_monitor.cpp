#include "comm/diagnostics/peer_monitor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <set>
#include <utility>

#include "comm/diagnostics/status_exchange.hpp"
#include "comm/errors.hpp"
#include "comm/group_key_value_store.hpp"
#include "core/runtime/signal_free_thread.hpp"
#include "core/time.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep::comm {

namespace {

using coordination::kWaitTimes;
using Milliseconds = PeerMonitor::Milliseconds;

constexpr Milliseconds kLongestPause = std::chrono::minutes(1);
constexpr std::uint64_t kRecent = 8;
constexpr int kMostGroups = 16;

RankReport::Group report_on(const FlightRecorder& recorder, int group) {
  RankReport::Group report{recorder.progress(group), {}};
  const std::uint64_t last = report.progress.collectives;
  for (std::uint64_t number = last > kRecent ? last - kRecent + 1 : 1; number <= last; ++number) {
    if (const auto record = recorder.find_collective(group, number))
      report.recent.emplace(number, record->meta.fingerprint());
  }
  return report;
}

RankReport report_on(const FlightRecorder& recorder) {
  RankReport report{recorder.rank(), "", {}};
  if (const auto beat = process_heartbeat().last()) report.activity = beat->text();
  const int groups = recorder.groups();
  for (int group = std::max(0, groups - kMostGroups); group < groups; ++group)
    report.groups.emplace(recorder.group(group).name, report_on(recorder, group));
  return report;
}

}  // namespace

struct PeerMonitor::Shared {
  Shared(const Store& store, std::shared_ptr<FlightRecorder> kept_recorder, Milliseconds warn_after_time)
      : recorder(std::move(kept_recorder)),
        questions(bounded(store, kWaitTimes.store_answer), recorder->rank(), recorder->world_size()),
        listener(store.clone(), recorder->rank(), recorder->world_size()),
        warn_after(warn_after_time) {}

  void run() noexcept {
    try {
      while (!stopping) {
        const bool asked = listener.await(round, pause());
        if (stopping) break;
        if (asked) answer();
        look_at_own_waits();
      }
    } catch (const std::exception&) {
      // The store is gone, and the job with it: no more questions will arrive.
    }
    const std::lock_guard lock(mutex);
    has_ended = true;
    ended.notify_all();
  }

  void answer() {
    listener.answer(round, report_on(*recorder));
    answered_at = monotonic_now();
    ++round;
  }

  /// How long the operation may take before the next warning.
  Milliseconds limit_of(const OperationRecord& record) const {
    return record.id.serial == warned.serial ? next_warning : warn_after;
  }

  /// How long the thread may sleep until the next warning is due.
  Milliseconds pause() const {
    if (warn_after.count() == 0) return kLongestPause;
    const auto oldest = recorder->oldest_unfinished();
    if (!oldest) return std::min(warn_after, kLongestPause);
    return std::clamp(limit_of(*oldest) - oldest->age(), Milliseconds(1), kLongestPause);
  }

  void look_at_own_waits() {
    const auto oldest = recorder->oldest_unfinished();
    if (!oldest || warn_after.count() == 0) return;
    const Milliseconds age = oldest->age();
    if (age < limit_of(*oldest)) return;
    warned = oldest->id;
    next_warning = 2 * std::max(age, warn_after);
    const auto waiting = waiting_for(*oldest, recorder->group(oldest->id.group), recorder->rank(),
                                     ask(listener, kWaitTimes.peer_answer));
    // All ranks have started it: it is slow, or has finished without being waited for.
    if (waiting.missing.empty()) return;
    std::cerr << fmt::format("lockstep: rank {} has been waiting in {} for {}: {}\n", recorder->rank(),
                             oldest->text(), format_duration(age), waiting.text)
              << std::flush;
  }

  PeerStatus ask(const StatusExchange& exchange, Milliseconds limit, const Enough& enough = {}) {
    PeerStatus result;
    const auto knows_enough = [&] {
      if (!enough) return false;
      result.departed = exchange.departed();
      return enough(result.departed);
    };
    try {
      if (knows_enough()) return result;
      std::uint64_t asked = round;
      const bool is_fresh =
          monotonic_now() - answered_at < std::chrono::nanoseconds(kWaitTimes.recent_answer).count();
      if (asked > 1 && is_fresh) {
        --asked;
      } else {
        exchange.begin(asked);
        if (&exchange == &listener) answer();  // The monitor thread asks, so it must answer itself.
      }
      const net::Deadline deadline = net::Clock::now() + limit;
      while (!exchange.await_answers(asked, std::min(kWaitTimes.departure_look, net::left_until(deadline)))) {
        if (net::left_until(deadline) <= Milliseconds(0)) break;
        if (knows_enough()) return result;
      }
      result.reports = exchange.answers(asked);
      result.departed = exchange.departed();
    } catch (const std::exception&) {
      // Questions are asked after failures: returns what is known.
      result.store_answers = false;
    }
    return result;
  }

  void announce_departure(const std::string& how) noexcept {
    if (has_departed.exchange(true)) return;
    try {
      questions.depart(how);
    } catch (const std::exception&) {
      // The store is gone: the others are gone too, or learn it from that.
    }
  }

  void announce_exit() noexcept {
    announce_departure(fmt::format("left the group after {} operations", recorder->operations()));
  }

  void stop() noexcept {
    if (stopping.exchange(true)) return;
    try {
      questions.wake_self(round);
      questions.wake_self(round + 1);
    } catch (const std::exception&) {
      // The thread's own connection has then failed as well.
    }
  }

  /// A program may call exit() while its groups exist: also announce the exit to the others then.
  struct Live {
    std::mutex mutex;
    std::set<Shared*> monitors;
  };
  static Live& live() {
    static Live* const all = [] {
      std::atexit([] {
        const std::lock_guard lock(live().mutex);
        for (Shared* const monitor : live().monitors) {
          monitor->announce_exit();
          monitor->stop();
        }
      });
      return new Live();
    }();
    return *all;
  }

  std::shared_ptr<FlightRecorder> recorder;
  StatusExchange questions;
  StatusExchange listener;
  Milliseconds warn_after;
  std::atomic<std::uint64_t> round{1};
  std::atomic<std::int64_t> answered_at{0};
  std::atomic<bool> stopping{false};
  std::atomic<bool> has_departed{false};
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  OperationId warned;
  Milliseconds next_warning{0};
};

PeerMonitor::PeerMonitor(const Store& store, std::shared_ptr<FlightRecorder> recorder,
                         Milliseconds warn_after)
    : shared_(std::make_shared<Shared>(store, std::move(recorder), warn_after)),
      thread_(signal_free_thread([shared = shared_] { shared->run(); })) {
  const std::lock_guard lock(Shared::live().mutex);
  Shared::live().monitors.insert(shared_.get());
}

PeerMonitor::~PeerMonitor() {
  {
    const std::lock_guard lock(Shared::live().mutex);
    Shared::live().monitors.erase(shared_.get());
  }
  shared_->announce_exit();
  shared_->stop();
  std::unique_lock lock(shared_->mutex);
  const bool ended =
      shared_->ended.wait_for(lock, kWaitTimes.monitor_end, [&] { return shared_->has_ended; });
  lock.unlock();
  // A thread that is blocked on a connection to a lost host ends when that times out.
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

PeerStatus PeerMonitor::ask(Milliseconds limit, const Enough& enough) {
  return shared_->ask(shared_->questions, limit, enough);
}

void PeerMonitor::announce_exit() noexcept { shared_->announce_exit(); }

void PeerMonitor::announce_departure(const std::string& how) noexcept { shared_->announce_departure(how); }

}  // namespace lockstep::comm
