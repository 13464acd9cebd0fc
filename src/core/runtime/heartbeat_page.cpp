#include "core/runtime/heartbeat_page.hpp"

#include <bit>
#include <cctype>
#include <cstring>
#include <string>
#include <tuple>

namespace lockstep {
namespace {

using Beat = HeartbeatPage::Beat;
using BeatWords = HeartbeatPage::BeatWords;

std::uint64_t checksum_of(const BeatWords& words) noexcept {
  std::uint64_t sum = 0x9e3779b97f4a7c15;
  for (const std::uint64_t word : words) sum = std::rotl((sum ^ word) * 0xff51afd7ed558ccd, 29);
  return sum;
}

std::string printable(std::string text) {
  text.resize(strnlen(text.data(), text.size()));
  for (char& letter : text) {
    if (std::isprint(static_cast<unsigned char>(letter)) == 0) letter = '?';
  }
  return text;
}

HeartbeatRecord record_of(const HeartbeatPage& page, const Beat& beat) {
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

}  // namespace

bool HeartbeatPage::has_magic() const noexcept { return std::memcmp(magic, kMagic, sizeof kMagic) == 0; }

void HeartbeatPage::write_beat(const Beat& beat) noexcept {
  auto& record = records[beat.count % 2];
  const auto words = std::bit_cast<BeatWords>(beat);
  for (std::size_t i = 0; i < words.size(); ++i) {
    field(record.words[i]).store(words[i], std::memory_order_relaxed);
  }
  field(record.checksum).store(checksum_of(words), std::memory_order_relaxed);
}

HeartbeatPage HeartbeatPage::copy() noexcept {
  using Words = std::array<std::uint64_t, sizeof(HeartbeatPage) / sizeof(std::uint64_t)>;
  static_assert(sizeof(Words) == sizeof(HeartbeatPage));
  Words seen;
  auto* const words = reinterpret_cast<std::uint64_t*>(this);
  for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = field(words[i]).load();
  return std::bit_cast<HeartbeatPage>(seen);
}

std::optional<Beat> HeartbeatPage::newest_beat() const noexcept {
  std::optional<Beat> result;
  for (const auto& record : records) {
    if (record.checksum != checksum_of(record.words)) continue;
    const auto beat = std::bit_cast<Beat>(record.words);
    if (!result || beat.count > result->count) result = beat;
  }
  return result;
}

Activity activity_of(std::uint64_t number) noexcept {
  return number >= 1 && number <= 3 ? static_cast<Activity>(number) : Activity::working;
}

std::optional<HeartbeatRecord> newest_record(const std::function<bool(HeartbeatPage&)>& read) {
  constexpr int kMaxReads = 100;
  for (int i = 0; i < kMaxReads; ++i) {
    HeartbeatPage page;
    if (!read(page)) return std::nullopt;
    const auto beat = page.newest_beat();
    // A time of 0 means no beat.
    if (beat && beat->time > 0) return record_of(page, *beat);
    if (page.sequence == 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lockstep
