#include "lockstep/parallel/parallel_apply.hpp"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/runtime/crash_handler.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

/// The state of the caller's thread that a task inherits.
struct Surroundings {
  explicit Surroundings(const at::Device& device) : caller() {
    if (device.is_cpu()) return;
    stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  at::ThreadLocalState caller;
  std::optional<c10::Stream> stream = {};
};

void run_in(const Surroundings& surroundings, const std::function<void()>& task) {
  const at::ThreadLocalStateGuard modes(surroundings.caller);
  const c10::OptionalStreamGuard stream(surroundings.stream);
  task();
}

[[noreturn]] void rethrow(const std::exception_ptr& failure, std::size_t replica, const at::Device& device) {
  const std::string who = fmt::format("replica {} on {}: ", replica, device.str());
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    std::throw_with_nested(Error(who + error.what()));
  } catch (...) {
    std::throw_with_nested(Error(who + "an exception of an unknown type"));
  }
}

}  // namespace

/// A thread that runs one task after another.
class TaskThread {
 public:
  /// `loop_threads`: number of PyTorch's loop threads in this thread; 0: unchanged.
  explicit TaskThread(int loop_threads) : thread_([this, loop_threads] { work(loop_threads); }) { wait(); }
  ~TaskThread() {
    give(nullptr, /*ends=*/true);
    thread_.join();
  }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void give(const std::function<void()>* task, bool ends = false) {
    const std::scoped_lock lock(mutex_);
    task_ = task;
    ends_ = ends;
    busy_ = true;
    changed_.notify_all();
  }

  /// The task's exception, if any.
  std::exception_ptr wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_; });
    return std::exchange(failure_, nullptr);
  }

 private:
  void work(int loop_threads) {
    use_crash_stack();
    if (loop_threads > 0) at::set_num_threads(loop_threads);
    for (bool goes_on = true; goes_on;) goes_on = step();
  }

  bool step() {
    std::unique_lock lock(mutex_);
    busy_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return busy_; });
    if (ends_) return false;
    lock.unlock();
    std::exception_ptr failure;
    try {
      (*task_)();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;
  bool busy_ = true;
  bool ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

struct ReplicaThreads::Impl {
  std::vector<at::Device> devices;
  std::vector<std::unique_ptr<TaskThread>> threads = {};
};

ReplicaThreads::ReplicaThreads(std::vector<at::Device> devices)
    : impl_(std::make_unique<Impl>(Impl{std::move(devices)})) {
  const auto& all = impl_->devices;
  const auto is_cpu = [](const at::Device& device) { return device.is_cpu(); };
  const int sharers = static_cast<int>(std::count_if(all.begin(), all.end(), is_cpu));
  const int whole = at::get_num_threads();
  for (const auto& device : all) {
    const int share = device.is_cpu() ? std::max(1, whole / sharers) : 0;
    impl_->threads.push_back(std::make_unique<TaskThread>(share));
  }
  // The number that a thread sets is also the initial one of threads that are created later.
  if (sharers > 0) at::set_num_threads(whole);
}

ReplicaThreads::~ReplicaThreads() = default;

const std::vector<at::Device>& ReplicaThreads::devices() const noexcept { return impl_->devices; }

void ReplicaThreads::run(const std::vector<std::function<void()>>& tasks) {
  if (tasks.size() > impl_->threads.size()) {
    throw UsageError(
        fmt::format("parallel_apply: {} inputs for {} replicas", tasks.size(), impl_->threads.size()));
  }
  std::vector<std::function<void()>> surrounded;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    surrounded.emplace_back(
        [&task = tasks[i], around = Surroundings(impl_->devices[i])] { run_in(around, task); });
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) impl_->threads[i]->give(&surrounded[i]);
  std::vector<std::exception_ptr> failures;
  for (std::size_t i = 0; i < tasks.size(); ++i) failures.push_back(impl_->threads[i]->wait());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (failures[i]) rethrow(failures[i], i, impl_->devices[i]);
  }
}

}  // namespace lockstep::parallel
