#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "net/store/key_value_table.hpp"
#include "net/store/request_parser.hpp"

namespace lockstep::net {

/// Pending bytes to a client: small pieces are copied, stored values shared.
class SendBuffer {
 public:
  explicit SendBuffer(MemoryBudget& budget) : budget_(budget) {}

  /// Both throw StoreFull if the budget is exceeded.
  void put(std::string_view bytes);
  /// The length, then the bytes. Null: an empty value.
  void put_value(const Value& value);

  /// Sends what the socket accepts. False: the connection is lost.
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

/// The requests of one client after its greeting: executes them and puts answers into the send buffer.
class ClientSession {
 public:
  ClientSession(WaiterId id, KeyValueTable& table, MemoryBudget& budget)
      : id_(id), table_(table), parser_(budget), send_buffer_(budget) {}
  ~ClientSession() { table_.cancel(id_); }
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  /// Executes the requests in `bytes`. Stops early, and leaves the rest in `bytes`, if the client does not
  /// read its answers. Throws BadRequest or StoreFull: the connection must be closed.
  void receive(std::string_view& bytes);

  /// Called when the table has ended this client's wait.
  void end_wait() { send_buffer_.put({&kWaitEnded, 1}); }

  std::uint64_t executed() const { return executed_; }
  bool is_inside_request() const { return parser_.is_inside_request(); }
  /// Whether so many bytes are pending that no more requests are accepted.
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
