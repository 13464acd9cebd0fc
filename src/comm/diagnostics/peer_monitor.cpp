#include "comm/diagnostics/peer_monitor.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "comm/diagnostics/status_exchange.hpp"
#include "comm/first_failure.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "net/signal_free_thread.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = PeerMonitor::Milliseconds;
using Clock = std::chrono::steady_clock;

/// An answer this fresh serves a second rank that asks.
constexpr Milliseconds kFresh{500};
/// How long a rank that asks waits for the store itself.
constexpr Milliseconds kStoreTime{2000};
/// How long a rank that warns waits for the others' answers.
constexpr Milliseconds kWarningTime{2000};
constexpr Milliseconds kLongestPause = std::chrono::minutes(1);
constexpr Milliseconds kJoinPatience{2000};
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

}  // namespace

struct PeerMonitor::Shared {
  Shared(const Store& store, std::shared_ptr<FlightRecorder> kept_recorder, Milliseconds warn_after_time,
         LongWait long_wait)
      : recorder(std::move(kept_recorder)),
        questions(bounded(store, kStoreTime), recorder->rank(), recorder->world_size()),
        listener(store.clone(), recorder->rank(), recorder->world_size()),
        warn_after(warn_after_time),
        on_long_wait(std::move(long_wait)) {}

  void run() noexcept;
  void answer();
  RankReport report() const;
  /// How long the thread may sleep before an operation is due for a warning.
  Milliseconds pause() const;
  void look_at_own_waits();
  /// `in_thread`: it is the monitor's own thread that asks, so that nobody else answers for this rank.
  PeerStatus ask(const StatusExchange& board, Milliseconds limit, bool in_thread);
  void announce_departure(const std::string& how) noexcept;
  void stop() noexcept;

  std::shared_ptr<FlightRecorder> recorder;
  StatusExchange questions;
  StatusExchange listener;
  Milliseconds warn_after;
  LongWait on_long_wait;
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

namespace {

/// A program may end by exit(), with its groups alive: the others are told then too.
class LiveMonitors {
 public:
  static LiveMonitors& instance() {
    static LiveMonitors* const all = [] {
      std::atexit([] { instance().leave(); });
      return new LiveMonitors();
    }();
    return *all;
  }

  void add(const std::function<void()>* on_exit) {
    const std::lock_guard lock(mutex_);
    on_exit_.insert(on_exit);
  }
  void remove(const std::function<void()>* on_exit) {
    const std::lock_guard lock(mutex_);
    on_exit_.erase(on_exit);
  }

 private:
  void leave() {
    const std::lock_guard lock(mutex_);
    for (const auto* on_exit : on_exit_) (*on_exit)();
  }

  std::mutex mutex_;
  std::set<const std::function<void()>*> on_exit_;
};

}  // namespace

RankReport PeerMonitor::Shared::report() const {
  RankReport report{recorder->rank(), "", {}};
  if (const auto beat = process_heartbeat().last()) report.doing = beat->text();
  const int groups = recorder->groups();
  for (int group = std::max(0, groups - kMostGroups); group < groups; ++group)
    report.groups.emplace(recorder->group(group).name, report_on(*recorder, group));
  return report;
}

void PeerMonitor::Shared::answer() {
  listener.answer(round, report());
  answered_at = monotonic_now();
  ++round;
}

Milliseconds PeerMonitor::Shared::pause() const {
  if (warn_after.count() == 0) return kLongestPause;
  const auto oldest = recorder->oldest_unfinished();
  if (!oldest) return std::min(warn_after, kLongestPause);
  const bool again = oldest->id.serial == warned.serial;
  const Milliseconds age((monotonic_now() - oldest->created) / 1'000'000);
  return std::clamp((again ? next_warning : warn_after) - age, Milliseconds(1), kLongestPause);
}

void PeerMonitor::Shared::look_at_own_waits() {
  const auto oldest = recorder->oldest_unfinished();
  if (!oldest || warn_after.count() == 0) return;
  const Milliseconds age((monotonic_now() - oldest->created) / 1'000'000);
  if (age < (oldest->id.serial == warned.serial ? next_warning : warn_after)) return;
  warned = oldest->id;
  next_warning = 2 * std::max(age, warn_after);
  on_long_wait(*oldest, age, ask(listener, kWarningTime, true));
}

void PeerMonitor::Shared::run() noexcept {
  try {
    while (!stopping) {
      const bool asked = listener.await(round, pause());
      if (stopping) break;
      if (asked) answer();
      look_at_own_waits();
    }
  } catch (const std::exception&) {
    // The store is gone, and the job with it: nobody asks any more.
  }
  const std::lock_guard lock(mutex);
  has_ended = true;
  ended.notify_all();
}

PeerStatus PeerMonitor::Shared::ask(const StatusExchange& board, Milliseconds limit, bool in_thread) {
  PeerStatus result;
  try {
    std::uint64_t asked = round;
    const bool is_fresh = monotonic_now() - answered_at < std::chrono::nanoseconds(kFresh).count();
    if (asked > 1 && is_fresh) {
      --asked;
    } else {
      board.begin(asked);
      if (in_thread) answer();
    }
    result.reports = board.answers(asked, limit);
    result.departed = board.departed();
  } catch (const std::exception&) {
    // Whoever asks does so because something is broken; what is known is given.
    result.store_answers = false;
  }
  return result;
}

void PeerMonitor::Shared::announce_departure(const std::string& how) noexcept {
  if (has_departed.exchange(true)) return;
  try {
    questions.depart(how);
  } catch (const std::exception&) {
    // The store is gone: so are the others, or they learn it from that.
  }
}

void PeerMonitor::Shared::stop() noexcept {
  if (stopping.exchange(true)) return;
  try {
    questions.wake_self(round);
    questions.wake_self(round + 1);
  } catch (const std::exception&) {
    // Then the thread's own connection has ended as well.
  }
}

namespace {

std::string exit_text(const FlightRecorder& recorder) {
  return "left the group after " + std::to_string(recorder.operations()) + " operations";
}

}  // namespace

PeerMonitor::PeerMonitor(const Store& store, std::shared_ptr<FlightRecorder> recorder,
                         Milliseconds warn_after, LongWait on_long_wait)
    : shared_(std::make_shared<Shared>(store, std::move(recorder), warn_after, std::move(on_long_wait))),
      on_exit_([shared = shared_.get()] {
        shared->announce_departure(exit_text(*shared->recorder));
        shared->stop();
      }),
      thread_(net::signal_free_thread([shared = shared_] { shared->run(); })) {
  LiveMonitors::instance().add(&on_exit_);
}

PeerMonitor::~PeerMonitor() {
  LiveMonitors::instance().remove(&on_exit_);
  announce_exit();
  shared_->stop();
  std::unique_lock lock(shared_->mutex);
  const bool ended = shared_->ended.wait_for(lock, kJoinPatience, [&] { return shared_->has_ended; });
  lock.unlock();
  // One that is stuck in a connection to a host that has vanished ends when that times out.
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

PeerStatus PeerMonitor::ask(Milliseconds limit) { return shared_->ask(shared_->questions, limit, false); }

std::map<int, std::string> PeerMonitor::departed() {
  try {
    return shared_->questions.departed();
  } catch (const std::exception&) {
    return {};
  }
}

void PeerMonitor::announce_exit() noexcept { shared_->announce_departure(exit_text(*shared_->recorder)); }

void PeerMonitor::announce_departure(const std::string& how) noexcept { shared_->announce_departure(how); }

}  // namespace lockstep::comm
