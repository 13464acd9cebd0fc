#include "lockstep/core/runtime/heartbeat.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>

#include "core/runtime/process_handle.hpp"
#include "core/runtime/rank_counters.hpp"
#include "core/runtime/stack_trace.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

/// The file by which a rank tells its launcher, without a system call, that it makes progress. Written by one
/// process at a time, through a mapping. An odd `sequence` means that one of its threads is writing: another
/// thread then drops its own beat instead of waiting. Other processes use read(2) instead of mapping the
/// file, because truncating it would kill a process that has it mapped.
///
/// The writer may be killed or stopped between any two stores, and a reader must never wait for it, nor take
/// a mixture of two beats for one. So beats are written to two records in turn, by the parity of their count:
///
///     beat 6   records[0] = 6      records[1] = 5      either may be read
///     beat 7   records[0] = 6      records[1] = ...    being written: its checksum does not fit yet
///              records[0] = 6      records[1] = 7      either may be read
///
/// A reader copies the page, drops records whose checksum does not fit, and takes the one with the higher
/// count. If the writer was so fast that both are torn, it reads again, at most kMaxReads times. The checksum
/// is over the whole record, so the stores need no order among each other. Fields outside the records are
/// single words, each atomic by itself. In the mapping they are accessed through field(), except for `magic`,
/// which never changes.
struct Heartbeat::Page {
  /// The content of a beat.
  struct Beat {
    std::uint64_t count;  // Number of the beat.
    std::int64_t time;    // CLOCK_MONOTONIC, nanoseconds.
    std::uint64_t number;
    std::uint64_t activity;
    char what[40];  // Not terminated when it is full.
  };

  using BeatWords = std::array<std::uint64_t, sizeof(Beat) / sizeof(std::uint64_t)>;

  struct Record {
    BeatWords words;
    std::uint64_t checksum;
  };

  char magic[8];
  std::uint64_t sequence;  // Odd while a thread beats; half of it is the number of beats.
  std::int64_t pid;        // 0: no process beats yet.
  std::int64_t stack_signal;
  std::uint64_t step;
  Record records[2];  // By the parity of the beat's count.
};

namespace {

using Page = Heartbeat::Page;
using Beat = Page::Beat;
using BeatWords = Page::BeatWords;
constexpr std::size_t kBeatWords = std::tuple_size_v<BeatWords>;

constexpr char kMagic[8] = {'L', 'S', 'B', 'E', 'A', 'T', '0', '3'};

std::uint64_t checksum_of(const BeatWords& words) noexcept {
  std::uint64_t sum = 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : words) sum = std::rotl((sum ^ word) * 0xff51afd7ed558ccd, 29);
  return sum;
}

/// How often a reader retries while the writer keeps writing.
constexpr int kMaxReads = 100;

template <class Number>
std::atomic_ref<Number> field(Number& number) noexcept {
  static_assert(std::atomic_ref<Number>::is_always_lock_free);
  return std::atomic_ref<Number>(number);
}

void write_record(Page::Record& record, const Beat& beat) noexcept {
  const auto words = std::bit_cast<BeatWords>(beat);
  for (std::size_t i = 0; i < kBeatWords; ++i) {
    field(record.words[i]).store(words[i], std::memory_order_relaxed);
  }
  field(record.checksum).store(checksum_of(words), std::memory_order_relaxed);
}

/// A copy of this process's own page.
Page snapshot_of(Page& page) noexcept {
  using Words = std::array<std::uint64_t, sizeof(Page) / sizeof(std::uint64_t)>;
  static_assert(sizeof(Words) == sizeof(Page));
  Words seen;
  auto* const words = reinterpret_cast<std::uint64_t*>(&page);
  for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = field(words[i]).load();
  return std::bit_cast<Page>(seen);
}

/// The newest complete beat of a copy; nothing if there is none. The file may contain anything.
std::optional<Beat> newest_beat(const Page& page) noexcept {
  std::optional<Beat> result;
  for (const auto& record : page.records) {
    if (record.checksum != checksum_of(record.words)) continue;
    const auto beat = std::bit_cast<Beat>(record.words);
    if (!result || beat.count > result->count) result = beat;
  }
  return result;
}

std::string printable(std::string text) {
  text.resize(strnlen(text.data(), text.size()));
  for (char& letter : text) {
    if (std::isprint(static_cast<unsigned char>(letter)) == 0) letter = '?';
  }
  return text;
}

Activity activity_of(std::uint64_t number) {
  return number >= 1 && number <= 3 ? static_cast<Activity>(number) : Activity::working;
}

HeartbeatRecord record_of(const Page& page, const Beat& beat) {
  HeartbeatRecord record;
  record.pid = static_cast<pid_t>(page.pid);
  record.stack_signal = static_cast<int>(page.stack_signal);
  record.activity = activity_of(beat.activity);
  record.beat_time = beat.time;
  record.step = page.step;
  record.number = beat.number;
  record.what = printable({beat.what, sizeof beat.what});
  return record;
}

/// `read(page)` returns false if there is no heartbeat. A time of 0 means no beat.
template <class Read>
std::optional<HeartbeatRecord> newest_record(Read&& read) {
  for (int i = 0; i < kMaxReads; ++i) {
    Page page;
    if (!read(page)) return std::nullopt;
    const auto beat = newest_beat(page);
    if (beat && beat->time > 0) return record_of(page, *beat);
    if (page.sequence == 0) return std::nullopt;
  }
  return std::nullopt;
}

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
  while (!field(page.pid).compare_exchange_strong(owner, self)) {
    if (owner == self || !has_ended(static_cast<pid_t>(owner), 0)) return false;
  }
  // A process that died within a beat leaves an odd number, with which no beat would begin.
  const std::uint64_t sequence = field(page.sequence).load();
  if (sequence % 2 == 1) field(page.sequence).store(sequence - 1);
  return true;
}

}  // namespace

Heartbeat::Heartbeat(const std::string& path) noexcept : page_(map_page(path)), in_file_(true) {
  const bool usable =
      page_ != nullptr && std::memcmp(page_->magic, kMagic, sizeof kMagic) == 0 && take(*page_);
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
  const auto shared = field(page.sequence);
  std::uint64_t sequence = shared.load(std::memory_order_relaxed);
  // Another thread is writing; its beat is as good, so this one does not wait.
  if (sequence % 2 == 1 ||
      !shared.compare_exchange_strong(sequence, sequence + 1, std::memory_order_acquire)) {
    return;
  }
  const std::uint64_t count = sequence / 2 + 1;
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  Beat beat{count, now.count(), number, static_cast<std::uint64_t>(activity), {}};
  std::memcpy(beat.what, what.data(), std::min(what.size(), sizeof beat.what));
  write_record(page.records[count % 2], beat);
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
  field(page_->step).fetch_add(1, std::memory_order_relaxed);
  beat(Activity::working, "between steps", 0);
}

void Heartbeat::resumed_at(std::uint64_t step) noexcept {
  if (page_ != nullptr) field(page_->step).store(step, std::memory_order_relaxed);
}

void Heartbeat::accepts_stack_signal(int number) noexcept {
  if (page_ != nullptr) field(page_->stack_signal).store(number, std::memory_order_relaxed);
}

Heartbeat::Waiting::Waiting(Heartbeat& heartbeat, std::string_view what, std::uint64_t number) noexcept
    : heartbeat_(heartbeat), exceptions_(std::uncaught_exceptions()) {
  begin_wait();
  if (heartbeat_.page_ == nullptr) return;
  if (const auto before = newest_beat(snapshot_of(*heartbeat_.page_))) {
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
    seen = snapshot_of(*page_);
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

std::string stacks_file(const std::string& heartbeat_file) { return heartbeat_file + ".stacks"; }

void make_heartbeat_file(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  Page empty{};
  std::memcpy(empty.magic, kMagic, sizeof kMagic);
  static_assert(sizeof empty <= 4096, "rank_counters.cpp has the next page");
  if (!file || write(file.get(), &empty, sizeof empty) != static_cast<ssize_t>(sizeof empty))
    throw Error(fmt::format("cannot make the heartbeat file '{}': {}.", path, std::strerror(errno)));
  add_rank_counters(file.get());
}

std::optional<HeartbeatRecord> read_heartbeat(const std::string& path) {
  // O_NONBLOCK: does not hang if the path is a pipe.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  auto record = newest_record([&](Page& seen) {
    return pread(file.get(), &seen, sizeof seen, 0) == static_cast<ssize_t>(sizeof seen) &&
           std::memcmp(seen.magic, kMagic, sizeof kMagic) == 0;
  });
  return record && record->pid > 0 ? record : std::nullopt;
}

}  // namespace lockstep
