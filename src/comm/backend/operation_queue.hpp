#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::comm {

/// While such an object exists, its thread waits for each operation right after adding it, and so runs it
/// itself: waking a worker and being woken by it would cost more than many operations. Scopes nest. *Local*.
///
/// It is a flag of the thread and no argument, because c10d's interface lies between the caller and the
/// queue: `backend->allreduce(tensors)` cannot say "I wait for it at once". The same is true of
/// OperationLabel, by which DistributedDataParallel names a bucket for messages and traces:
///
///     CallerWaits waits;                   sets the flag
///     backend->allreduce(tensors)          c10d: no argument for it
///     OperationQueue::add()                reads the flag: no worker is woken
///     work->wait()                         runs the operation here; the flag is off meanwhile
///
/// Both describe the calls that their thread makes now. The flag must not apply to what that thread runs on
/// behalf of others: while it runs an operation, or what follows one (`when_done`), it is off, because nobody
/// waits yet for an operation that is added there, and a worker has to run it. The label needs no such care
/// in an operation, because it is read where an operation is created.
class CallerWaits {
 public:
  /// `waits`: false for code inside such a scope that may not wait.
  explicit CallerWaits(bool waits = true) noexcept : before_(std::exchange(flag(), waits)) {}
  ~CallerWaits() { flag() = before_; }
  CallerWaits(const CallerWaits&) = delete;
  CallerWaits& operator=(const CallerWaits&) = delete;

  static bool now() noexcept { return flag(); }

 private:
  static bool& flag() noexcept {
    thread_local bool waits = false;
    return waits;
  }

  bool before_;
};

/// Operations of one group. They begin one at a time in the order of the queue, in the thread that waits for
/// one of them or in a worker. Handing an operation to another thread costs more than a small operation.
/// Workers are therefore woken only for urgent operations, and otherwise poll for operations that no thread
/// waits for. Any thread may call any method.
class OperationQueue {
 public:
  /// An operation and its result.
  struct Entry;
  using Handle = std::shared_ptr<Entry>;

  /// `cpu`: CPU of the workers; -1: any. `workers`: maximum number of operations under way at a time.
  explicit OperationQueue(int cpu = -1, int workers = 1) : cpu_(cpu), most_workers_(workers) {}
  ~OperationQueue() { close(); }
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  /// Runs what is still queued and ends the workers. Nothing may be added afterwards.
  void close();

  /// `urgent`: a worker runs it immediately, unless a waiting thread is faster or the caller waits
  /// (CallerWaits). `overlaps`: the next operation may begin before it has ended.
  Handle add(std::function<void()> body, bool urgent, bool overlaps = true);

  /// Runs an operation in this thread, after those before it, and rethrows its exception.
  void run(const std::function<void()>& body);

  /// Returns when the operation has ended, and rethrows its exception.
  void wait(const Handle& entry);

  bool is_done(const Handle& entry);
  std::exception_ptr failure_of(const Handle& entry);

  /// Calls `then` in the thread that runs the operation when it has ended; immediately if it already has. At
  /// most once per operation. A worker then runs it even if no thread waits.
  void when_done(const Handle& entry, std::function<void(std::exception_ptr)> then);

  /// Called by an operation that from now on only waits: the next one may begin. No effect if the queue's
  /// operations do not overlap, or outside of an operation.
  static void let_next_begin();

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// The operation that a thread runs and that keeps others from beginning.
  struct Turn {
    OperationQueue* queue;
    bool may_end_early;
    bool ended = false;
  };

  void run_next(Lock& lock);
  std::exception_ptr perform(std::function<void()> body, bool overlaps, Lock& lock);
  void end(Turn& turn);
  void start_worker();
  void call_worker();
  bool all_workers_run() const { return running_workers_ == workers_.size(); }
  void work();
  bool has_work_for_worker() const { return !entries_.empty() && !turn_taken_ && (urgent_ || overdue_); }
  void await_work(Lock& lock);

  static Turn*& turn_of_thread() noexcept {
    thread_local Turn* turn = nullptr;
    return turn;
  }

  const int cpu_;
  const int most_workers_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::condition_variable for_worker_;
  std::deque<Handle> entries_;
  bool turn_taken_ = false;  // An operation runs that does not let the next one begin yet.
  int running_ = 0;
  std::size_t running_workers_ = 0;  // Workers that run an operation.
  bool urgent_ = false;              // Workers must empty the queue.
  bool overdue_ = false;             // The first operation has waited for a whole tick.
  int dozing_ = 0;                   // Workers that sleep until woken; others look again within a tick.
  bool stopping_ = false;
  std::chrono::steady_clock::time_point last_added_{};
  std::vector<std::thread> workers_;
};

}  // namespace lockstep::comm
