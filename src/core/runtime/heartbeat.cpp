#include "lockstep/core/runtime/heartbeat.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>

#include "core/runtime/heartbeat_page.hpp"
#include "core/runtime/stack_trace.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep {
namespace {

std::int64_t monotonic_now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

Heartbeat::Page* map_page(const std::string& path) noexcept {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return nullptr;
  struct stat facts {};
  void* address = MAP_FAILED;
  if (fstat(file, &facts) == 0 && facts.st_size >= static_cast<off_t>(sizeof(Heartbeat::Page))) {
    address = mmap(nullptr, sizeof(Heartbeat::Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  return address == MAP_FAILED ? nullptr : static_cast<Heartbeat::Page*>(address);
}

bool is_alive(pid_t process) noexcept { return kill(process, 0) == 0 || errno != ESRCH; }

/// One process a file: children inherit the variable that names it.
bool take(Heartbeat::Page& page) noexcept {
  std::int32_t owner = 0;
  const std::int32_t self = getpid();
  while (!page.pid.compare_exchange_strong(owner, self)) {
    if (owner == self || is_alive(owner)) return false;
  }
  return true;
}

}  // namespace

Heartbeat::Heartbeat(const std::string& path) noexcept : page_(map_page(path)), in_file_(true) {
  const bool usable = page_ != nullptr &&
                      std::memcmp(page_->magic, kHeartbeatMagic, sizeof kHeartbeatMagic) == 0 && take(*page_);
  if (usable || page_ == nullptr) return;
  munmap(page_, sizeof(Page));
  page_ = nullptr;
}

Heartbeat::Heartbeat(InMemory) noexcept {
  void* const address =
      mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return;
  page_ = static_cast<Page*>(address);
  page_->pid = getpid();
}

Heartbeat::~Heartbeat() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
}

void Heartbeat::beat(Activity activity, std::string_view what, std::uint64_t number) noexcept {
  if (page_ == nullptr) return;
  Page& page = *page_;
  std::uint32_t sequence = page.sequence.load(std::memory_order_relaxed);
  // Another thread is at it, and its beat is as good: nobody waits here.
  if (sequence % 2 == 1 ||
      !page.sequence.compare_exchange_strong(sequence, sequence + 1, std::memory_order_acquire)) {
    return;
  }
  page.activity = static_cast<std::uint32_t>(activity);
  page.beat_time = monotonic_now();
  page.number = number;
  const std::size_t length = std::min(what.size(), sizeof page.what);
  std::memcpy(page.what, what.data(), length);
  std::memset(page.what + length, 0, sizeof page.what - length);
  page.sequence.store(sequence + 2, std::memory_order_release);
}

void Heartbeat::working(std::string_view what, std::uint64_t number) noexcept {
  beat(Activity::working, what, number);
}

void Heartbeat::perhaps_waiting(std::string_view what, std::uint64_t number) noexcept {
  beat(Activity::either, what, number);
}

void Heartbeat::finished_step() noexcept {
  if (page_ == nullptr) return;
  page_->step.fetch_add(1, std::memory_order_relaxed);
  beat(Activity::working, "between steps", 0);
}

void Heartbeat::resumed_at(std::uint64_t step) noexcept {
  if (page_ != nullptr) page_->step.store(step, std::memory_order_relaxed);
}

void Heartbeat::accepts_stack_signal(int number) noexcept {
  if (page_ != nullptr) page_->stack_signal.store(number, std::memory_order_relaxed);
}

Heartbeat::Waiting::Waiting(Heartbeat& heartbeat, std::string_view what, std::uint64_t number) noexcept
    : heartbeat_(heartbeat), exceptions_(std::uncaught_exceptions()) {
  if (heartbeat_.page_ == nullptr) return;
  // Another thread may write at this moment; the worst that follows is a wrong name for what comes after the
  // wait.
  activity_ = static_cast<Activity>(heartbeat_.page_->activity);
  std::memcpy(what_, heartbeat_.page_->what, sizeof what_);
  number_ = heartbeat_.page_->number;
  heartbeat_.beat(Activity::waiting, what, number);
}

Heartbeat::Waiting::~Waiting() {
  if (std::uncaught_exceptions() > exceptions_) return;
  heartbeat_.beat(activity_, {what_, strnlen(what_, sizeof what_)}, number_);
}

Heartbeat& process_heartbeat() noexcept {
  // Never destroyed: threads may beat until the process is gone.
  static Heartbeat* const heartbeat = [] {
    const auto path = find_variable(process_environment(), "LOCKSTEP_HEARTBEAT_FILE");
    if (path) {
      auto* const opened = new Heartbeat(*path);
      if (opened->is_watched()) {
        opened->accepts_stack_signal(write_stacks_on_signal(stacks_file(*path)));
        return opened;
      }
      delete opened;
    }
    return new Heartbeat(Heartbeat::InMemory{});
  }();
  return *heartbeat;
}

}  // namespace lockstep
