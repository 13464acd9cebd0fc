#include "lockstep/core/runtime/heartbeat.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include "core/file_descriptor.hpp"
#include "core/runtime/heartbeat_file.hpp"
#include "core/runtime/heartbeat_page.hpp"
#include "core/runtime/process_handle.hpp"
#include "core/runtime/rank_counters.hpp"
#include "core/runtime/stack_trace.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep {
namespace {

using Page = HeartbeatPage;

Page* map_page(const std::string& path) noexcept {
  const FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  void* address = MAP_FAILED;
  if (fstat(file.get(), &facts) == 0 && facts.st_size >= static_cast<off_t>(sizeof(Page))) {
    address = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  }
  return address == MAP_FAILED ? nullptr : static_cast<Page*>(address);
}

/// One process per file: child processes inherit the variable that names it.
bool take(Page& page) noexcept {
  std::int64_t owner = 0;
  const std::int64_t self = getpid();
  while (!Page::field(page.pid).compare_exchange_strong(owner, self)) {
    if (owner == self || !has_ended(static_cast<pid_t>(owner), 0)) return false;
  }
  // A process that died within a beat leaves an odd number, with which no beat would begin.
  const std::uint64_t sequence = Page::field(page.sequence).load();
  if (sequence % 2 == 1) Page::field(page.sequence).store(sequence - 1);
  return true;
}

}  // namespace

Heartbeat::Heartbeat(const std::string& path) noexcept : page_(map_page(path)), in_file_(true) {
  const bool usable = page_ != nullptr && page_->has_magic() && take(*page_);
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
  const auto shared = Page::field(page.sequence);
  std::uint64_t sequence = shared.load(std::memory_order_relaxed);
  // Another thread is writing; its beat is as good, so this one does not wait.
  if (sequence % 2 == 1 ||
      !shared.compare_exchange_strong(sequence, sequence + 1, std::memory_order_acquire)) {
    return;
  }
  const std::uint64_t count = sequence / 2 + 1;
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  Page::Beat beat{count, now.count(), number, static_cast<std::uint64_t>(activity), {}};
  std::memcpy(beat.what, what.data(), std::min(what.size(), sizeof beat.what));
  page.write_beat(beat);
  shared.store(sequence + 2, std::memory_order_release);
}

void Heartbeat::working(std::string_view what, std::uint64_t number) noexcept {
  beat(Activity::working, what, number);
}

void Heartbeat::perhaps_waiting(std::string_view what, std::uint64_t number) noexcept {
  beat(Activity::either, what, number);
}

void Heartbeat::finished_step() noexcept {
  if (page_ == nullptr) return;
  Page::field(page_->step).fetch_add(1, std::memory_order_relaxed);
  beat(Activity::working, "between steps", 0);
}

void Heartbeat::resumed_at(std::uint64_t step) noexcept {
  if (page_ != nullptr) Page::field(page_->step).store(step, std::memory_order_relaxed);
}

void Heartbeat::accepts_stack_signal(int number) noexcept {
  if (page_ != nullptr) Page::field(page_->stack_signal).store(number, std::memory_order_relaxed);
}

Heartbeat::Waiting::Waiting(Heartbeat& heartbeat, std::string_view what, std::uint64_t number) noexcept
    : heartbeat_(heartbeat), exceptions_(std::uncaught_exceptions()) {
  begin_wait();
  if (heartbeat_.page_ == nullptr) return;
  if (const auto before = heartbeat_.page_->copy().newest_beat()) {
    activity_ = activity_of(before->activity);
    std::memcpy(what_, before->what, sizeof what_);
    number_ = before->number;
  }
  heartbeat_.beat(Activity::waiting, what, number);
}

Heartbeat::Waiting::~Waiting() {
  end_wait();
  if (std::uncaught_exceptions() > exceptions_) return;
  heartbeat_.beat(activity_, {what_, strnlen(what_, sizeof what_)}, number_);
}

std::string HeartbeatRecord::text() const {
  std::string result = what.empty() ? "an unnamed place" : what;
  if (number > 0) result += fmt::format(" #{}", number);
  return activity == Activity::waiting ? result : fmt::format("{}, step {}", result, step);
}

std::optional<HeartbeatRecord> Heartbeat::last() const {
  if (page_ == nullptr) return std::nullopt;
  return newest_record([&](Page& seen) {
    seen = page_->copy();
    return true;
  });
}

Heartbeat& process_heartbeat() noexcept {
  // Never destroyed: threads may beat until the process ends.
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
