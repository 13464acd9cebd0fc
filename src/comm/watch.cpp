#include "watch.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "impatient_store.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "net/signal_free_thread.hpp"
#include "watch_board.hpp"

namespace lockstep::comm {
namespace {

using Milliseconds = Watch::Milliseconds;
using Clock = std::chrono::steady_clock;

/// An answer this fresh serves a second rank that asks.
constexpr Milliseconds kFresh{500};
/// How long a rank that asks waits for the store itself.
constexpr Milliseconds kStoreTime{2000};
/// How long a rank that warns waits for the others' answers.
constexpr Milliseconds kAnswerTime{2000};
constexpr Milliseconds kLongestPause = std::chrono::minutes(1);
constexpr Milliseconds kJoinPatience{2000};
constexpr std::uint64_t kRecent = 8;
constexpr int kMostGroups = 16;

RankReport::Group report_on(const FlightRecorder& recorder, int group) {
  RankReport::Group report{recorder.progress(group), {}};
  const std::uint64_t last = report.progress.collectives;
  for (std::uint64_t number = last > kRecent ? last - kRecent + 1 : 1; number <= last; ++number) {
    if (const auto record = recorder.find_collective(group, number))
      report.recent.emplace(number, record->facts.claim());
  }
  return report;
}

}  // namespace

struct Watch::Shared {
  Shared(const Store& store, std::shared_ptr<FlightRecorder> kept_recorder, Milliseconds warn_after_time,
         LongWait long_wait)
      : recorder(std::move(kept_recorder)),
        questions(impatient(store, kStoreTime), recorder->rank(), recorder->world_size()),
        listener(store.clone(), recorder->rank(), recorder->world_size()),
        warn_after(warn_after_time),
        on_long_wait(std::move(long_wait)) {}

  void run() noexcept;
  void answer();
  RankReport report() const;
  /// How long the thread may sleep before an operation is due for a warning.
  Milliseconds pause() const;
  void look_at_own_waits();
  /// `in_thread`: it is the watch's own thread that asks, so that nobody else answers for this rank.
  Whereabouts ask(const WatchBoard& board, Milliseconds limit, bool in_thread);
  void say_departure(const std::string& how) noexcept;
  void stop() noexcept;

  std::shared_ptr<FlightRecorder> recorder;
  WatchBoard questions;
  WatchBoard listener;
  Milliseconds warn_after;
  LongWait on_long_wait;
  std::atomic<std::uint64_t> round{1};
  std::atomic<std::int64_t> answered_at{0};
  std::atomic<bool> stopping{false};
  std::atomic<bool> has_departed{false};
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;
  Ticket warned;
  Milliseconds next_warning{0};
};

namespace {

/// A program may end by exit(), with its groups alive: the others are told then too.
class LiveWatches {
 public:
  static LiveWatches& instance() {
    static LiveWatches* const all = [] {
      std::atexit([] { instance().leave(); });
      return new LiveWatches();
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

RankReport Watch::Shared::report() const {
  RankReport report{recorder->rank(), "", {}};
  if (const auto beat = process_heartbeat().last()) report.doing = beat->text();
  const int groups = recorder->groups();
  for (int group = std::max(0, groups - kMostGroups); group < groups; ++group)
    report.groups.emplace(recorder->group(group).name, report_on(*recorder, group));
  return report;
}

void Watch::Shared::answer() {
  listener.answer(round, report());
  answered_at = monotonic_now();
  ++round;
}

Milliseconds Watch::Shared::pause() const {
  if (warn_after.count() == 0) return kLongestPause;
  const auto oldest = recorder->oldest_unfinished();
  if (!oldest) return std::min(warn_after, kLongestPause);
  const bool again = oldest->ticket.id == warned.id;
  const Milliseconds age((monotonic_now() - oldest->created) / 1'000'000);
  return std::clamp((again ? next_warning : warn_after) - age, Milliseconds(1), kLongestPause);
}

void Watch::Shared::look_at_own_waits() {
  const auto oldest = recorder->oldest_unfinished();
  if (!oldest || warn_after.count() == 0) return;
  const Milliseconds age((monotonic_now() - oldest->created) / 1'000'000);
  if (age < (oldest->ticket.id == warned.id ? next_warning : warn_after)) return;
  warned = oldest->ticket;
  next_warning = 2 * std::max(age, warn_after);
  on_long_wait(*oldest, age, ask(listener, kAnswerTime, true));
}

void Watch::Shared::run() noexcept {
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

Whereabouts Watch::Shared::ask(const WatchBoard& board, Milliseconds limit, bool in_thread) {
  Whereabouts result;
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

void Watch::Shared::say_departure(const std::string& how) noexcept {
  if (has_departed.exchange(true)) return;
  try {
    questions.depart(how);
  } catch (const std::exception&) {
    // The store is gone: so are the others, or they learn it from that.
  }
}

void Watch::Shared::stop() noexcept {
  if (stopping.exchange(true)) return;
  try {
    questions.wake_self(round);
    questions.wake_self(round + 1);
  } catch (const std::exception&) {
    // Then the thread's own connection has ended as well.
  }
}

namespace {

std::string farewell(const FlightRecorder& recorder) {
  return "left the group after " + std::to_string(recorder.operations()) + " operations";
}

}  // namespace

Watch::Watch(const Store& store, std::shared_ptr<FlightRecorder> recorder, Milliseconds warn_after,
             LongWait on_long_wait)
    : shared_(std::make_shared<Shared>(store, std::move(recorder), warn_after, std::move(on_long_wait))),
      on_exit_([shared = shared_.get()] {
        shared->say_departure(farewell(*shared->recorder));
        shared->stop();
      }),
      thread_(net::signal_free_thread([shared = shared_] { shared->run(); })) {
  LiveWatches::instance().add(&on_exit_);
}

Watch::~Watch() {
  LiveWatches::instance().remove(&on_exit_);
  say_goodbye();
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

Whereabouts Watch::ask(Milliseconds limit) { return shared_->ask(shared_->questions, limit, false); }

std::map<int, std::string> Watch::departed() {
  try {
    return shared_->questions.departed();
  } catch (const std::exception&) {
    return {};
  }
}

void Watch::say_goodbye() noexcept { shared_->say_departure(farewell(*shared_->recorder)); }

void Watch::say_departure(const std::string& how) noexcept { shared_->say_departure(how); }

}  // namespace lockstep::comm
