#include "net/store/request_parser.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace lockstep::net {
namespace {

/// The parts of each request: k a key, v a value, n a number, p a number of 4 bytes, * a list of the rest.
/// Null: not allowed after the greeting.
constexpr const char* kShapes[kQueryTypes] = {nullptr, "kv", "kvv", "k", "kn", "*k", "*k", "",  "k",
                                              "kv",    "*k", "*kv", "",  "p",  "kv", "k",  "k", ""};

/// An element of a vector, and the allocator's overhead.
constexpr std::size_t kPerText = 64;
constexpr std::size_t kFirstReserve = 64;
constexpr const char* kNoMemoryForRequest = "no memory for the request.";

}  // namespace

std::optional<Request> RequestParser::feed(std::string_view& bytes) {
  while (!bytes.empty()) {
    if (step_ == nullptr) {
      begin(bytes.front());
      bytes.remove_prefix(1);
    } else if (!step(bytes)) {
      continue;
    }
    if (*step_ != '\0') continue;
    step_ = nullptr;
    reservation_.clear();
    return std::exchange(request_, {});
  }
  return std::nullopt;
}

void RequestParser::begin(char type) {
  const auto number = static_cast<std::uint8_t>(type);
  if (number >= kQueryTypes || kShapes[number] == nullptr) {
    throw BadRequest(fmt::format("unknown request {}.", number));
  }
  request_.type = static_cast<QueryType>(number);
  step_ = kShapes[number];
  element_ = nullptr;
}

/// Consumes bytes of the current part; true when the part is complete.
bool RequestParser::step(std::string_view& bytes) {
  if (text_length_) {
    if (!take_text(bytes)) return false;
    text_length_.reset();
    advance();
    return true;
  }
  if (!fill(number_, bytes, *step_ == 'p' ? 4 : 8)) return false;
  if (*step_ == '*') {
    begin_list();
  } else if (*step_ == 'k' || *step_ == 'v') {
    begin_text(*step_ == 'k' ? kLongestKey : kLongestValue);
    return !text_length_;
  } else {
    request_.number = read_number(std::exchange(number_, {}));
    advance();
  }
  return true;
}

void RequestParser::begin_list() {
  elements_left_ = read_number(std::exchange(number_, {}));
  if (elements_left_ > kMostKeys) throw BadRequest(fmt::format("a list of {} keys.", elements_left_));
  element_ = ++step_;
  if (elements_left_ == 0) step_ += std::char_traits<char>::length(step_);
}

void RequestParser::begin_text(std::uint64_t limit) {
  const std::uint64_t length = read_number(std::exchange(number_, {}));
  if (length > limit) throw BadRequest(fmt::format("a string of {} bytes.", length));
  reservation_.grow(kPerText, kNoMemoryForRequest);
  request_.strings.emplace_back();
  if (length == 0) {
    advance();
  } else {
    text_length_ = length;
  }
}

/// Consumes bytes of a text; true when it is complete.
bool RequestParser::take_text(std::string_view& bytes) {
  std::string& text = request_.strings.back();
  const auto length = static_cast<std::size_t>(*text_length_);
  const std::size_t taken = std::min(length - text.size(), bytes.size());
  if (text.size() + taken > text.capacity()) {
    const std::size_t wanted = std::max({text.size() + taken, 2 * text.capacity(), kFirstReserve});
    const std::size_t before = text.capacity();
    const std::size_t after = std::min(length, wanted);
    reservation_.grow(after - std::min(before, after), kNoMemoryForRequest);
    text.reserve(after);
  }
  return fill(text, bytes, length);
}

void RequestParser::advance() {
  ++step_;
  if (*step_ != '\0' || element_ == nullptr) return;
  if (--elements_left_ > 0) step_ = element_;
}

}  // namespace lockstep::net
