#include "net/reply_reader.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "net/store_protocol.hpp"

namespace lockstep::net {
namespace {

/// Values grow beyond the longest one that can be set, by appending.
constexpr std::uint64_t kLongestText = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostTexts = std::uint64_t{1} << 24;
constexpr std::size_t kStep = 1 << 20;

void check(std::uint64_t count, std::uint64_t limit, const char* what) {
  if (count <= limit) return;
  throw CommunicationError("the store answered with a " + std::string(what) + " of " + std::to_string(count) +
                           ": that is no store.");
}

}  // namespace

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
  check(length, kLongestText, "length");
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
  check(count, kMostTexts, "list");
  std::vector<std::string> all;
  for (std::uint64_t i = 0; i < count; ++i) all.push_back(text());
  return all;
}

}  // namespace lockstep::net
