#include "content_hash.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace lockstep::table {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ULL;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

template <typename Word>
Word word(const unsigned char* data) noexcept {
  Word value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

std::uint64_t rounded(std::uint64_t lane, std::uint64_t input) noexcept {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

std::uint64_t merged(const std::array<std::uint64_t, 4>& lanes) noexcept {
  std::uint64_t hash =
      std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const auto lane : lanes) hash = (hash ^ rounded(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

std::uint64_t rest(std::uint64_t hash, const unsigned char* next, std::size_t bytes) noexcept {
  for (; bytes >= 8; bytes -= 8, next += 8) {
    hash = std::rotl(hash ^ rounded(0, word<std::uint64_t>(next)), 27) * kPrime1 + kPrime4;
  }
  if (bytes >= 4) {
    hash = std::rotl(hash ^ word<std::uint32_t>(next) * kPrime1, 23) * kPrime2 + kPrime3;
    bytes -= 4;
    next += 4;
  }
  for (; bytes > 0; --bytes, ++next) hash = std::rotl(hash ^ *next * kPrime5, 11) * kPrime1;
  return hash;
}

}  // namespace

void ContentHash::stripe(const unsigned char* data) noexcept {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane] = rounded(lanes_[lane], word<std::uint64_t>(data + 8 * lane));
  }
}

void ContentHash::update(const void* data, std::size_t bytes) noexcept {
  const auto* next = static_cast<const unsigned char*>(data);
  total_ += bytes;
  if (waiting_bytes_ > 0 || bytes < waiting_.size()) {
    const auto count = std::min(bytes, waiting_.size() - waiting_bytes_);
    if (count > 0) std::memcpy(waiting_.data() + waiting_bytes_, next, count);
    waiting_bytes_ += count;
    next += count;
    bytes -= count;
    if (waiting_bytes_ < waiting_.size()) return;
    stripe(waiting_.data());
    waiting_bytes_ = 0;
  }
  for (; bytes >= waiting_.size(); bytes -= waiting_.size(), next += waiting_.size()) stripe(next);
  if (bytes > 0) std::memcpy(waiting_.data(), next, bytes);
  waiting_bytes_ = bytes;
}

void ContentHash::update_field(std::string_view text) noexcept {
  update_number(text.size());
  update(text);
}

std::uint64_t ContentHash::value() const noexcept {
  auto hash = (total_ >= waiting_.size() ? merged(lanes_) : kPrime5) + total_;
  hash = rest(hash, waiting_.data(), waiting_bytes_);
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

std::string ContentHash::text() const {
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value()));
  return digits;
}

}  // namespace lockstep::table
