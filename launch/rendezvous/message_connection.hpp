#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"
#include "rendezvous/message_codec.hpp"

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

  /// The messages that have come from a node, or from the coordinator. A peer that breaks the form is closed.
  std::vector<NodeMessage> receive_from_node() { return receive<NodeMessage>(decode_node_message); }
  std::vector<CoordinatorMessage> receive_from_coordinator() {
    return receive<CoordinatorMessage>(decode_coordinator_message);
  }

 private:
  void send_text(const std::string& text);
  void read_all();
  std::optional<std::string> take_text();

  template <class Message>
  std::vector<Message> receive(std::optional<Message> (*decode)(const std::string&)) {
    std::vector<Message> messages;
    if (!closed()) read_all();
    try {
      while (const auto text = take_text()) {
        if (auto message = decode(*text)) messages.push_back(*std::move(message));
      }
    } catch (const DataError& error) {
      why_closed_ = std::string("sent something that is not understood: ") + error.what();
      incoming_.clear();
    }
    return messages;
  }

  net::FileDescriptor socket_;
  std::string incoming_;
  std::string outgoing_;
  std::string why_closed_;
};

}  // namespace lockstep::launch
