#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::net {

/// Takes a store's answers apart. Memory grows with what has come, not with what a length promises.
class ReplyReader {
 public:
  /// Fills exactly `count` bytes, or throws.
  using Source = std::function<void(char* into, std::size_t count)>;

  explicit ReplyReader(Source source) : source_(std::move(source)) {}

  char byte();
  std::int64_t number();
  /// Throws CommunicationError for a length beyond 1 GiB, which no store gives.
  std::string text();
  /// A count and as many texts.
  std::vector<std::string> texts();

 private:
  Source source_;
};

}  // namespace lockstep::net
