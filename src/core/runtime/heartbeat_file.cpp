#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>

#include "core/runtime/heartbeat_page.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// The page as plain bytes: what is in the file need not be what a Heartbeat wrote.
struct Snapshot {
  alignas(Heartbeat::Page) unsigned char bytes[sizeof(Heartbeat::Page)] = {};

  template <class Field>
  Field get(std::size_t offset) const {
    Field field;
    std::memcpy(&field, bytes + offset, sizeof field);
    return field;
  }
};

/// Until two looks see the same, or a writer has died between two halves of a beat: then what it left.
bool steady_look(int file, Snapshot& seen) {
  constexpr int kLooks = 8;
  for (int look = 0; look < kLooks; ++look) {
    Snapshot now;
    if (pread(file, now.bytes, sizeof now.bytes, 0) != static_cast<ssize_t>(sizeof now.bytes)) return false;
    const bool same = look > 0 && std::memcmp(now.bytes, seen.bytes, sizeof now.bytes) == 0;
    seen = now;
    if (same && now.get<std::uint32_t>(offsetof(Heartbeat::Page, sequence)) % 2 == 0) break;
  }
  return std::memcmp(seen.bytes, kHeartbeatMagic, sizeof kHeartbeatMagic) == 0;
}

std::string printable(std::string text) {
  text.resize(strnlen(text.data(), text.size()));
  for (char& letter : text) {
    if (std::isprint(static_cast<unsigned char>(letter)) == 0) letter = '?';
  }
  return text;
}

Activity activity_of(std::uint32_t number) {
  return number >= 1 && number <= 3 ? static_cast<Activity>(number) : Activity::working;
}

HeartbeatRecord record_of(const Snapshot& seen) {
  using Page = Heartbeat::Page;
  HeartbeatRecord record;
  record.pid = seen.get<std::int32_t>(offsetof(Page, pid));
  record.stack_signal = seen.get<std::int32_t>(offsetof(Page, stack_signal));
  record.activity = activity_of(seen.get<std::uint32_t>(offsetof(Page, activity)));
  record.beat_time = seen.get<std::int64_t>(offsetof(Page, beat_time));
  record.step = seen.get<std::uint64_t>(offsetof(Page, step));
  record.number = seen.get<std::uint64_t>(offsetof(Page, number));
  record.what =
      printable({reinterpret_cast<const char*>(seen.bytes) + offsetof(Page, what), sizeof(Page::what)});
  return record;
}

}  // namespace

std::string HeartbeatRecord::text() const {
  std::string result = what.empty() ? "an unnamed place" : what;
  if (number > 0) result += " #" + std::to_string(number);
  return activity == Activity::waiting ? result : result + ", step " + std::to_string(step);
}

std::optional<HeartbeatRecord> Heartbeat::last() const {
  if (page_ == nullptr) return std::nullopt;
  Snapshot seen;
  std::memcpy(seen.bytes, static_cast<const void*>(page_), sizeof seen.bytes);
  HeartbeatRecord record = record_of(seen);
  return record.beat_time > 0 ? std::optional(std::move(record)) : std::nullopt;
}

std::string stacks_file(const std::string& heartbeat_file) { return heartbeat_file + ".stacks"; }

void make_heartbeat_file(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  Snapshot empty;
  std::memcpy(empty.bytes, kHeartbeatMagic, sizeof kHeartbeatMagic);
  const bool written =
      file >= 0 && write(file, empty.bytes, sizeof empty.bytes) == static_cast<ssize_t>(sizeof empty.bytes);
  const int failure = errno;
  if (file >= 0) close(file);
  if (!written) throw Error("cannot make the heartbeat file '" + path + "': " + std::strerror(failure) + ".");
}

std::optional<HeartbeatRecord> read_heartbeat(const std::string& path) {
  // Not to hang on a pipe that somebody put there.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  Snapshot seen;
  const bool whole = steady_look(file, seen);
  close(file);
  if (!whole) return std::nullopt;
  HeartbeatRecord record = record_of(seen);
  return record.pid > 0 && record.beat_time > 0 ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace lockstep
