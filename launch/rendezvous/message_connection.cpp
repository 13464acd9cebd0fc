#include "rendezvous/message_connection.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

constexpr std::size_t kHeader = sizeof(std::uint32_t);
constexpr std::size_t kMostUnsent = 4 << 20;

}  // namespace

MessageConnection::MessageConnection(net::FileDescriptor socket, int poll, std::string read_ahead,
                                     std::uint64_t key)
    : socket_(std::move(socket)), poll_(poll), key_(key), incoming_(std::move(read_ahead)) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  register_events(EPOLL_CTL_ADD);
}

void MessageConnection::register_events(int operation) {
  epoll_event event{};
  event.events = waits_to_send_ ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u64 = key_;
  if (poll_ >= 0 && epoll_ctl(poll_, operation, socket_.get(), &event) != 0)
    throw Error(std::string("cannot watch a connection: ") + std::strerror(errno) + ".");
}

void MessageConnection::send_text(const std::string& text) {
  if (closed()) return;
  if (text.size() > kLongestMessage) {
    why_closed_ =
        fmt::format("would have been sent a message of {} bytes, more than the protocol allows", text.size());
    return;
  }
  const std::uint32_t length = htonl(static_cast<std::uint32_t>(text.size()));
  outgoing_.append(reinterpret_cast<const char*>(&length), kHeader) += text;
  flush();
  if (outgoing_.size() > kMostUnsent) why_closed_ = "does not read its messages";
}

void MessageConnection::flush() {
  while (!outgoing_.empty() && !closed()) {
    const ssize_t count = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (count > 0) {
      outgoing_.erase(0, static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      const int error = errno;
      // What the peer sent before it left can still be read.
      read_all();
      if (!closed()) why_closed_ = std::string("can no longer be reached: ") + std::strerror(error);
    }
  }
  if (waits_to_send_ == outgoing_.empty()) {
    waits_to_send_ = !outgoing_.empty();
    register_events(EPOLL_CTL_MOD);
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
  // Limited, so that one peer does not block the others; poll reports the rest.
  for (int i = 0; i < 64 && !closed(); ++i) {
    const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      incoming_.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0) {
      why_closed_ = "closed its connection";
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      why_closed_ = std::string("can no longer be reached: ") + std::strerror(errno);
    }
  }
}

std::optional<std::string> MessageConnection::take_text() {
  if (incoming_.size() < kHeader) return std::nullopt;
  std::uint32_t length = 0;
  std::memcpy(&length, incoming_.data(), kHeader);
  length = ntohl(length);
  if (length > kLongestMessage)
    throw formatted<DataError>("a message of {} bytes, more than the protocol allows.", length);
  if (incoming_.size() < kHeader + length) return std::nullopt;
  std::string text = incoming_.substr(kHeader, length);
  incoming_.erase(0, kHeader + length);
  return text;
}

template <class Message>
std::vector<Message> MessageConnection::receive() {
  std::vector<Message> messages;
  flush();
  if (!closed()) read_all();
  try {
    while (const auto text = take_text()) {
      if (auto message = decode<Message>(*text)) messages.push_back(*std::move(message));
    }
  } catch (const DataError& error) {
    why_closed_ = std::string("sent an invalid message: ") + error.what();
    incoming_.clear();
  }
  return messages;
}
template std::vector<NodeMessage> MessageConnection::receive();
template std::vector<CoordinatorMessage> MessageConnection::receive();

}  // namespace lockstep::launch
