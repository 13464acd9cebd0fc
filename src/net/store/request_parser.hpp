#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/store/memory_budget.hpp"
#include "net/store/protocol.hpp"

namespace lockstep::net {

/// One request of a store's client. `strings` are in the order in which they came: a multi_set has key,
/// value, key, value.
struct Request {
  QueryType type = QueryType::validate;
  std::vector<std::string> strings;
  std::uint64_t number = 0;
};

/// Puts requests together from bytes that come in pieces of any size. A byte is looked at once; memory grows
/// with what has come, not with what a length promises, and is taken from the budget.
class RequestParser {
 public:
  explicit RequestParser(MemoryBudget& budget) : reservation_(budget) {}

  /// Takes from the front of `bytes` until a request is complete (which it returns) or all are taken. Throws
  /// BadRequest for what is no request or is beyond the protocol's limits, StoreFull beyond the budget; the
  /// parser is of no use after that.
  std::optional<Request> feed(std::string_view& bytes);

  /// Whether a request has begun and is not complete.
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
  /// What comes next, as a letter of the request's shape; null between requests.
  const char* step_ = nullptr;
  /// For lists: where each element begins, and how many are still to come.
  const char* element_ = nullptr;
  std::uint64_t elements_left_ = 0;
  /// The bytes of a number so far; the length of the text that is coming, once known.
  std::string number_;
  std::optional<std::uint64_t> text_length_;
};

}  // namespace lockstep::net
