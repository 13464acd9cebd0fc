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
  /// Takes a connected socket, and what was read from it too early. The epoll descriptor `poll` becomes
  /// readable when `receive` has something to do; -1: nobody polls.
  explicit MessageConnection(net::FileDescriptor socket, int poll = -1, std::string read_ahead = "");

  bool closed() const noexcept { return !why_closed_.empty(); }
  /// "closed its connection": ends a sentence about the peer. Empty as long as the connection is open.
  const std::string& why_closed() const noexcept { return why_closed_; }

  /// Sends, or keeps for later what the peer does not take now. Does nothing on a closed connection. A peer
  /// that reads nothing while megabytes are waiting is closed.
  void send(const NodeMessage& message) { send_text(encode(message)); }
  void send(const CoordinatorMessage& message) { send_text(encode(message)); }
  /// Ends the connection, after what the socket takes now; `why` is what `why_closed` says.
  void close(std::string why);

  /// The messages that have come, from a node (NodeMessage) or from the coordinator (CoordinatorMessage). A
  /// peer that breaks the form is closed. Sends on what waits, too.
  template <class Message>
  std::vector<Message> receive();

 private:
  void watch(int operation);
  void flush();
  void send_text(const std::string& text);
  void read_all();
  std::optional<std::string> take_text();

  net::FileDescriptor socket_;
  int poll_;
  /// Whether something waits until the peer reads.
  bool waits_to_send_ = false;
  std::string incoming_;
  std::string outgoing_;
  std::string why_closed_;
};

}  // namespace lockstep::launch
