#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/file_descriptor.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// Messages over a connection that never blocks: each is the length of its JSON text (4 bytes, most
/// significant first) and the text. For one thread.
class MessageConnection {
 public:
  /// Takes a connected socket, and what was read from it too early.
  explicit MessageConnection(net::FileDescriptor socket, std::string read_ahead = "");

  int descriptor() const noexcept { return socket_.get(); }
  /// Whether something waits until the peer reads; then `flush` is to be called when the socket can be
  /// written.
  bool unsent() const noexcept { return !outgoing_.empty(); }
  bool closed() const noexcept { return !why_closed_.empty(); }
  /// "closed its connection": ends a sentence about the peer. Empty as long as the connection is open.
  const std::string& why_closed() const noexcept { return why_closed_; }

  /// Sends, or keeps for later what the peer does not take now. Does nothing on a closed connection. A peer
  /// that reads nothing while megabytes are waiting is closed.
  void send(const NodeMessage& message) { send_text(encode(message)); }
  void send(const CoordinatorMessage& message) { send_text(encode(message)); }
  void flush();
  /// Ends the connection, after what the socket takes now; `why` is what `why_closed` says.
  void close(std::string why);

  /// The messages that have come, from a node (NodeMessage) or from the coordinator (CoordinatorMessage). A
  /// peer that breaks the form is closed.
  template <class Message>
  std::vector<Message> receive();

 private:
  void send_text(const std::string& text);
  void read_all();
  std::optional<std::string> take_text();

  net::FileDescriptor socket_;
  std::string incoming_;
  std::string outgoing_;
  std::string why_closed_;
};

}  // namespace lockstep::launch
