#include "net/store/protocol.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/core/error.hpp"

namespace lockstep::net {

namespace {

/// append can make values longer than the longest one that can be set.
constexpr std::uint64_t kLongestText = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostTexts = std::uint64_t{1} << 24;
constexpr std::size_t kStep = 64 * 1024;

void check_answer(std::uint64_t count, std::uint64_t limit, const char* what) {
  if (count <= limit) return;
  throw CommunicationError(
      fmt::format("the store answered with a {} of {}: that is not a store.", what, count));
}

void check_request(const char* what, std::size_t length, std::uint64_t limit) {
  if (length <= limit) return;
  throw UsageError(fmt::format("a store takes a {} of at most {} bytes, not of {}.", what, limit, length));
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "the protocol's numbers are little-endian");

std::string wire_number(std::uint64_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::uint64_t read_number(std::string_view bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

bool fill(std::string& filled, std::string_view& bytes, std::size_t count) {
  const std::size_t taken = std::min(count - filled.size(), bytes.size());
  filled.append(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  return filled.size() == count;
}

std::string greeting(std::uint32_t nonce) {
  std::string bytes(1, static_cast<char>(QueryType::validate));
  bytes.append(reinterpret_cast<const char*>(&kValidationMagic), sizeof kValidationMagic);
  bytes += static_cast<char>(QueryType::ping);
  return bytes.append(reinterpret_cast<const char*>(&nonce), sizeof nonce);
}

Writer& Writer::type(QueryType type) {
  bytes_ += static_cast<char>(type);
  return *this;
}

Writer& Writer::number(std::uint64_t value) {
  bytes_ += wire_number(value);
  return *this;
}

Writer& Writer::text(std::string_view value) {
  number(value.size());
  bytes_ += value;
  return *this;
}

Writer& Writer::key(std::string_view name) {
  const std::string wire = wire_key(name);
  check_request("key", wire.size(), kLongestKey);
  return text(wire);
}

Writer& Writer::value(std::string_view value) {
  check_request("value", value.size(), kLongestValue);
  return text(value);
}

Writer& Writer::count(std::size_t count) {
  check_request("list", count, kMostKeys);
  return number(count);
}

char ReplyReader::byte() {
  char value = 0;
  source_(&value, 1);
  return value;
}

std::int64_t ReplyReader::number() {
  char bytes[8];
  source_(bytes, sizeof bytes);
  return static_cast<std::int64_t>(read_number({bytes, sizeof bytes}));
}

std::string ReplyReader::text() {
  const auto length = static_cast<std::uint64_t>(number());
  check_answer(length, kLongestText, "length");
  std::string text;
  while (text.size() < length) {
    const std::size_t before = text.size();
    const std::size_t step = std::min<std::size_t>(length - before, std::max(kStep, before));
    text.resize(before + step);
    source_(text.data() + before, step);
  }
  return text;
}

std::vector<std::string> ReplyReader::texts() {
  const auto count = static_cast<std::uint64_t>(number());
  check_answer(count, kMostTexts, "list");
  std::vector<std::string> all;
  for (std::uint64_t i = 0; i < count; ++i) all.push_back(text());
  return all;
}

}  // namespace lockstep::net
