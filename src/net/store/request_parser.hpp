#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/store/memory_budget.hpp"
#include "net/store/protocol.hpp"

namespace lockstep::net {

/// A request of a store client. `strings` are in the order received: a multi_set has key, value, key, value.
struct Request {
  QueryType type = QueryType::validate;
  std::vector<std::string> strings;
  std::uint64_t number = 0;
};

/// Parses requests from chunks of any size. Each byte is examined once. Memory is allocated for received
/// bytes, not for announced lengths, and reserved in the budget.
class RequestParser {
 public:
  explicit RequestParser(MemoryBudget& budget) : reservation_(budget) {}

  /// Consumes `bytes` from the front until a request is complete (which it returns) or all are consumed.
  /// Throws BadRequest for an invalid request or one beyond the protocol's limits, StoreFull beyond the
  /// budget; the parser cannot be used after that.
  std::optional<Request> feed(std::string_view& bytes);

  /// Whether a request is partly received.
  bool is_inside_request() const { return step_ != nullptr; }

 private:
  void begin(char type);
  bool take_text(std::string_view& bytes);
  void begin_text(std::uint64_t limit);
  void begin_list();
  void advance();
  bool step(std::string_view& bytes);

  Reservation reservation_;
  Request request_;
  /// The next part, as a letter of the request's shape; null between requests.
  const char* step_ = nullptr;
  /// For lists: where each element begins, and the number of elements left.
  const char* element_ = nullptr;
  std::uint64_t elements_left_ = 0;
  /// The bytes of a number so far; the length of the current text, if known.
  std::string number_;
  std::optional<std::uint64_t> text_length_;
};

}  // namespace lockstep::net
