#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net/file_descriptor.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// Messages over a non-blocking connection. Each is the length of its JSON text (4 bytes, big-endian) and the
/// text. Not thread-safe.
class MessageConnection {
 public:
  /// Takes a connected socket, and the bytes that were already read from it: call `receive` once for those.
  /// The epoll descriptor `poll` becomes readable when `receive` has something to do, and its event's
  /// data.u64 is `key`; -1: no polling.
  explicit MessageConnection(net::FileDescriptor socket, int poll = -1, std::string read_ahead = "",
                             std::uint64_t key = 0);

  bool closed() const noexcept { return !why_closed_.empty(); }
  /// Completes a sentence about the peer: "closed its connection". Empty while the connection is open.
  const std::string& why_closed() const noexcept { return why_closed_; }

  /// Sends the message, or buffers what the socket does not take now. Does nothing on a closed connection.
  /// Closes the connection if the peer leaves megabytes unread.
  void send(const NodeMessage& message) { send_text(encode(message)); }
  void send(const CoordinatorMessage& message) { send_text(encode(message)); }
  /// Closes the connection after sending what the socket takes now; `why` is returned by `why_closed`.
  void close(std::string why);

  /// The messages received from a node (NodeMessage) or from the coordinator (CoordinatorMessage). Closes the
  /// connection if the peer violates the protocol. Also sends buffered data.
  template <class Message>
  std::vector<Message> receive();

 private:
  void register_events(int operation);
  void flush();
  void send_text(const std::string& text);
  void read_all();
  std::optional<std::string> take_text();

  net::FileDescriptor socket_;
  int poll_;
  std::uint64_t key_;
  /// Whether buffered data wait for the socket.
  bool waits_to_send_ = false;
  std::string incoming_;
  std::string outgoing_;
  std::string why_closed_;
};

}  // namespace lockstep::launch
