#pragma once

#include <string_view>

#include "net/key_value_table.hpp"
#include "net/request_parser.hpp"
#include "net/send_buffer.hpp"

namespace lockstep::net {

/// One client's talk with the store, after its greeting: bytes in, answers into the send_buffer. Knows no
/// sockets.
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
  void set_many(std::vector<std::string>& strings);
  void wait(const std::vector<std::string>& keys);
  void answer_pop(const std::string& queue);
  void answer_keys();
  void answer_number(std::uint64_t number) { send_buffer_.put(wire_number(number)); }

  WaiterId id_;
  KeyValueTable& table_;
  RequestParser parser_;
  SendBuffer send_buffer_;
  std::uint64_t executed_ = 0;
};

}  // namespace lockstep::net
