#include "core/runtime/rank_counters.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "core/file_descriptor.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {
namespace {

/// After the heartbeat's own page.
constexpr off_t kPlaceOfCounters = 4096;
constexpr off_t kBytesOfFile = 8192;

struct Counters {
  std::uint64_t samples = 0;
  std::uint64_t waited = 0;
};

Counters* map_counters() noexcept {
  static Counters own;
  // Of several processes with the variable, one owns the file.
  if (!process_heartbeat().is_watched()) return &own;
  const auto path = find_variable(process_environment(), "LOCKSTEP_HEARTBEAT_FILE");
  const FileDescriptor file(open(path.value_or("").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0 || facts.st_size < kBytesOfFile) return &own;
  void* const address =
      mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), kPlaceOfCounters);
  return address == MAP_FAILED ? &own : static_cast<Counters*>(address);
}

/// Never unmapped: threads may count until the process ends.
Counters& counters() noexcept {
  static Counters* const mapped = map_counters();
  return *mapped;
}

std::atomic_ref<std::uint64_t> atomic_of(std::uint64_t& number) noexcept {
  return std::atomic_ref<std::uint64_t>(number);
}

/// The waits that this thread is in, and the nanoseconds at which the first one began; those of all before.
struct ThreadWait {
  int depth = 0;
  std::int64_t begin = 0;
  std::int64_t total = 0;
};
thread_local ThreadWait thread_wait;

std::int64_t nanoseconds_now() noexcept {
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

}  // namespace

void count_samples(std::uint64_t count) noexcept {
  atomic_of(counters().samples).fetch_add(count, std::memory_order_relaxed);
}

void begin_wait() noexcept {
  if (thread_wait.depth++ == 0) thread_wait.begin = nanoseconds_now();
}

void end_wait() noexcept {
  if (--thread_wait.depth > 0) return;
  const std::int64_t time = nanoseconds_now() - thread_wait.begin;
  thread_wait.total += time;
  atomic_of(counters().waited).fetch_add(static_cast<std::uint64_t>(time), std::memory_order_relaxed);
}

std::int64_t thread_waited() noexcept { return thread_wait.total; }

RankCounters rank_counters() noexcept {
  return {atomic_of(counters().samples).load(), atomic_of(counters().waited).load()};
}

void add_rank_counters(int heartbeat_file) noexcept {
  static_cast<void>(ftruncate(heartbeat_file, kBytesOfFile) == 0);
}

std::optional<RankCounters> read_rank_counters(const std::string& heartbeat_file) {
  const FileDescriptor file(open(heartbeat_file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  Counters seen;
  if (pread(file.get(), &seen, sizeof seen, kPlaceOfCounters) != static_cast<ssize_t>(sizeof seen))
    return std::nullopt;
  return RankCounters{seen.samples, seen.waited};
}

}  // namespace lockstep
