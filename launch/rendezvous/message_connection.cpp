#include "rendezvous/message_connection.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

constexpr std::size_t kHeader = 4;
constexpr std::size_t kMostUnsent = 4 << 20;

std::string length_bytes(std::size_t length) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((length >> shift) & 0xff);
  return bytes;
}

std::size_t length_of(const std::string& bytes) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < kHeader; ++i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return length;
}

}  // namespace

MessageConnection::MessageConnection(net::FileDescriptor socket, std::string read_ahead)
    : socket_(std::move(socket)), incoming_(std::move(read_ahead)) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

void MessageConnection::send_text(const std::string& text) {
  if (closed()) return;
  if (text.size() > kLongestMessage) {
    why_closed_ =
        fmt::format("was to get a message of {} bytes, more than any of this protocol", text.size());
    return;
  }
  outgoing_ += length_bytes(text.size()) + text;
  flush();
  if (outgoing_.size() > kMostUnsent) why_closed_ = "does not read what it is sent";
}

void MessageConnection::flush() {
  while (!outgoing_.empty() && !closed()) {
    const ssize_t count = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (count > 0) {
      outgoing_.erase(0, static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      const int error = errno;
      // What the peer said before it went is still there.
      read_all();
      if (!closed()) why_closed_ = std::string("cannot be reached any more: ") + std::strerror(error);
    }
  }
}

void MessageConnection::close(std::string why) {
  if (closed()) return;
  flush();
  if (closed()) return;
  why_closed_ = std::move(why);
  shutdown(socket_.get(), SHUT_WR);
}

void MessageConnection::read_all() {
  std::array<char, 16 * 1024> buffer;
  // Bounded, so that one peer cannot hold the others; what is left wakes the poll again.
  for (int i = 0; i < 64 && !closed(); ++i) {
    const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      incoming_.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0) {
      why_closed_ = "closed its connection";
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      why_closed_ = std::string("cannot be reached any more: ") + std::strerror(errno);
    }
  }
}

std::optional<std::string> MessageConnection::take_text() {
  if (incoming_.size() < kHeader) return std::nullopt;
  const std::size_t length = length_of(incoming_);
  if (length > kLongestMessage)
    throw DataError(fmt::format("a message of {} bytes, more than any of this protocol.", length));
  if (incoming_.size() < kHeader + length) return std::nullopt;
  std::string text = incoming_.substr(kHeader, length);
  incoming_.erase(0, kHeader + length);
  return text;
}

template <class Message>
std::vector<Message> MessageConnection::receive() {
  std::vector<Message> messages;
  if (!closed()) read_all();
  try {
    while (const auto text = take_text()) {
      if (auto message = decode<Message>(*text)) messages.push_back(*std::move(message));
    }
  } catch (const DataError& error) {
    why_closed_ = std::string("sent something that is not understood: ") + error.what();
    incoming_.clear();
  }
  return messages;
}
template std::vector<NodeMessage> MessageConnection::receive();
template std::vector<CoordinatorMessage> MessageConnection::receive();

}  // namespace lockstep::launch
