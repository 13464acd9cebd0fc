#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "net/memory_budget.hpp"

namespace lockstep::net {

/// Bytes on their way to a client: small pieces copied and charged, stored values shared.
class SendBuffer {
 public:
  explicit SendBuffer(MemoryBudget& budget) : budget_(budget) {}

  /// Both throw StoreFull when the budget is spent.
  void put(std::string_view bytes);
  /// Its length, then its bytes. Null: an empty value.
  void put_value(const Value& value);

  /// Hands the socket what it takes. False: the connection is gone.
  bool send(int socket);
  bool empty() const { return pieces_.empty(); }
  std::size_t pending() const { return pending_; }

 private:
  struct Piece {
    std::string copied;
    Value shared;
    Reservation reservation;
    std::string_view bytes() const {
      return shared ? std::string_view(shared->bytes) : std::string_view(copied);
    }
  };

  void reservation(Piece& piece, std::size_t bytes);
  void drop(std::size_t count);

  MemoryBudget& budget_;
  std::deque<Piece> pieces_;
  std::size_t sent_of_first_ = 0;
  std::size_t pending_ = 0;
};

}  // namespace lockstep::net
