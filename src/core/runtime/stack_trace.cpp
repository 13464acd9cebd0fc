#include "core/runtime/stack_trace.hpp"

#include <dirent.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>

#include "core/runtime/heartbeat_file.hpp"
#include "core/runtime/signal_safe.hpp"

namespace lockstep {
namespace {

using namespace signal_safe;

constexpr int kMostFrames = 100;
/// Time limits of a thread to start writing its stack, and to finish.
constexpr int kAnswerTimeoutMs = 500;
constexpr int kWriteTimeoutMs = 3000;

/// State of the handler; one per process, like signal handlers.
struct StackSignal {
  char path[PATH_MAX] = {};
  std::atomic<int> number{0};
  std::atomic<bool> busy{false};
  /// The thread that should write its stack; negated once it has started.
  std::atomic<pid_t> wanted{0};
  std::atomic<bool> done{false};
  std::atomic<int> file{-1};
  std::atomic<unsigned> requests{0};
};
StackSignal stack_signal;

pid_t this_thread() noexcept { return static_cast<pid_t>(syscall(SYS_gettid)); }

/// The interrupted instruction; null on unsupported architectures.
void* interrupted_at(const void* context) noexcept {
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<void*>(registers.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(registers.pc);
#else
  static_cast<void>(registers);
  return nullptr;
#endif
}

/// Waits until another thread makes `condition` true. False after the timeout.
template <class Condition>
bool comes_true(const Condition& condition, int milliseconds) noexcept {
  for (int waited = 0; waited < milliseconds; ++waited) {
    if (condition()) return true;
    sleep_milliseconds(1);
  }
  return condition();
}

/// Returns false if the thread started writing and did not finish in time: the file must then stay open,
/// because the thread may still write to the descriptor.
bool ask(pid_t thread, int file) noexcept {
  stack_signal.done = false;
  stack_signal.wanted = thread;
  const auto done = [] { return stack_signal.done.load(); };
  if (syscall(SYS_tgkill, getpid(), thread, stack_signal.number.load()) == 0 &&
      comes_true(done, kAnswerTimeoutMs))
    return true;
  pid_t unheard = thread;
  if (!stack_signal.wanted.compare_exchange_strong(unheard, 0)) return comes_true(done, kWriteTimeoutMs);
  put(file, "  it did not answer: it blocks the signal, or hangs in the kernel\n");
  return true;
}

bool write_thread(pid_t thread, int file, const void* context) noexcept {
  put(file, Text().add("thread {} ({}):\n", thread, thread_name(thread).view()).view());
  if (thread != this_thread()) return ask(thread, file);
  write_interrupted_stack(file, context);
  return true;
}

bool write_threads_of(const char* entries, long bytes, int file, const void* context) noexcept {
  for (long at = 0; at < bytes;) {
    const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
    pid_t thread = 0;
    std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), thread);
    if (thread > 0 && !write_thread(thread, file, context)) return false;
    at += entry->d_reclen;
  }
  return true;
}

bool write_all_threads(int file, const void* context) noexcept {
  const FileDescriptor folder(open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Filled by getdents64; readdir would allocate memory.
  alignas(dirent64) char entries[4096];
  bool finished = true;
  for (long bytes = 1; finished && bytes > 0;) {
    bytes = syscall(SYS_getdents64, folder.get(), entries, sizeof entries);
    if (bytes > 0) finished = write_threads_of(entries, bytes, file, context);
  }
  return finished;
}

void write_stacks(const void* context) noexcept {
  const int file = open(stack_signal.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return;
  stack_signal.file = file;
  if (!write_all_threads(file, context)) return;
  put(file, kEndOfStacks);
  close(file);
}

void answer(const void* context) noexcept {
  const pid_t self = this_thread();
  pid_t wanted = self;
  if (stack_signal.wanted.compare_exchange_strong(wanted, -self)) {
    write_interrupted_stack(stack_signal.file, context);
    stack_signal.done = true;
  } else if (!stack_signal.busy.exchange(true)) {
    ++stack_signal.requests;
    write_stacks(context);
    stack_signal.busy = false;
  }
}

void on_stack_signal(int, siginfo_t*, void* context) {
  const int before = errno;
  answer(context);
  errno = before;
}

}  // namespace

void prepare_backtraces() noexcept {
  void* frames[2];
  backtrace(frames, 2);
}

void write_interrupted_stack(int descriptor, const void* context) noexcept {
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  // The frames before it belong to the handler.
  void** const first = std::find(frames, frames + count, interrupted_at(context));
  const auto skipped = first == frames + count ? 0 : static_cast<int>(first - frames);
  backtrace_symbols_fd(frames + skipped, count - skipped, descriptor);
}

unsigned stack_requests() noexcept { return stack_signal.requests; }

int write_stacks_on_signal(const std::string& path) noexcept {
  static const int installed = [&]() noexcept {
    if (path.size() >= sizeof stack_signal.path) return 0;
    std::memcpy(stack_signal.path, path.c_str(), path.size() + 1);
    prepare_backtraces();
    // Debuggers and other runtimes use the first ones.
    for (int number = SIGRTMIN + 5; number <= SIGRTMAX; ++number) {
      stack_signal.number = number;
      if (handle_unless_taken(number, on_stack_signal, SA_RESTART)) return number;
    }
    return 0;
  }();
  return installed;
}

}  // namespace lockstep
