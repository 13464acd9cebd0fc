#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Messages over a connection that never blocks: each is the length of a JSON text (4 bytes, most significant
/// first) and the text. For one thread.
class MessageConnection {
 public:
  using Json = nlohmann::json;
  /// Longer messages are refused on both sides.
  static constexpr std::size_t kLongestMessage = 1 << 20;

  /// Takes a connected socket, and what was read from it too early.
  explicit MessageConnection(net::FileDescriptor socket, std::string read_ahead = "");

  int descriptor() const noexcept { return socket_.get(); }
  /// Whether something waits until the peer reads; then `flush` is to be called when the socket can be
  /// written.
  bool unsent() const noexcept { return !outgoing_.empty(); }
  bool closed() const noexcept { return !why_closed_.empty(); }
  /// "closed its connection": ends a sentence about the peer. Empty as long as the channel is open.
  const std::string& why_closed() const noexcept { return why_closed_; }

  /// Sends, or keeps for later what the peer does not take now. Does nothing on a closed channel. A peer that
  /// reads nothing while megabytes are waiting closes the channel.
  void send(const Json& message);
  void flush();
  /// Ends the connection, after what the socket takes now; `why` is what `why_closed` says.
  void close(std::string why);
  /// The messages that have come. A peer that breaks the form closes the channel.
  std::vector<Json> receive();

 private:
  void read_all();
  bool take_message(std::vector<Json>& messages);

  net::FileDescriptor socket_;
  std::string incoming_;
  std::string outgoing_;
  std::string why_closed_;
};

}  // namespace lockstep::launch
