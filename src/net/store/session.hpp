#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "net/store/key_value_table.hpp"
#include "net/store/request_parser.hpp"

namespace lockstep::net {

/// Bytes on their way to a client: small pieces copied, stored values shared.
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

  void begin_piece(Value shared);
  void drop(std::size_t count);

  MemoryBudget& budget_;
  std::deque<Piece> pieces_;
  std::size_t sent_of_first_ = 0;
  std::size_t pending_ = 0;
};

/// One client's talk with the store, after its greeting: bytes in, answers into the send buffer.
class StoreSession {
 public:
  StoreSession(WaiterId id, KeyValueTable& table, MemoryBudget& budget)
      : id_(id), table_(table), parser_(budget), send_buffer_(budget) {}
  ~StoreSession() { table_.cancel(id_); }
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  /// Executes the requests in `bytes`; stops early, and leaves the rest in `bytes`, when the client does not
  /// read its answers. Throws BadRequest or StoreFull: the connection is to be closed.
  void receive(std::string_view& bytes);

  /// The table says that this client's wait has ended.
  void end_wait() { send_buffer_.put({&kWaitEnded, 1}); }

  std::uint64_t executed() const { return executed_; }
  bool is_inside_request() const { return parser_.is_inside_request(); }
  /// Whether so much is on its way out that no more requests are taken.
  bool is_congested() const;
  SendBuffer& send_buffer() { return send_buffer_; }

 private:
  void execute(Request& request);
  void answer_number(std::uint64_t number) { send_buffer_.put(wire_number(number)); }

  WaiterId id_;
  KeyValueTable& table_;
  RequestParser parser_;
  SendBuffer send_buffer_;
  std::uint64_t executed_ = 0;
};

}  // namespace lockstep::net
