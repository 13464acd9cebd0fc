#include "net/send_buffer.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/store_error.hpp"
#include "net/store_protocol.hpp"

namespace lockstep::net {
namespace {

/// A piece that takes more copies than this is full, and the next one begins.
constexpr std::size_t kFullPiece = 4096;

}  // namespace

void SendBuffer::reservation(Piece& piece, std::size_t bytes) {
  if (!piece.reservation.grow(bytes))
    throw StoreFull("no memory for the answers to a client that does not read them.");
}

void SendBuffer::put(std::string_view bytes) {
  if (pieces_.empty() || pieces_.back().shared || pieces_.back().copied.size() + bytes.size() > kFullPiece) {
    Piece piece{{}, nullptr, Reservation(budget_)};
    reservation(piece, kObjectOverhead);
    pieces_.push_back(std::move(piece));
  }
  // A string that grows may hold twice what it needs.
  reservation(pieces_.back(), 2 * bytes.size());
  pieces_.back().copied += bytes;
  pending_ += bytes.size();
}

void SendBuffer::put_value(const Value& value) {
  const std::size_t size = value ? value->bytes.size() : 0;
  put(wire_number(size));
  if (size <= kFullPiece / 2) {
    if (size > 0) put(value->bytes);
    return;
  }
  Piece piece{{}, value, Reservation(budget_)};
  reservation(piece, kObjectOverhead);
  pieces_.push_back(std::move(piece));
  pending_ += size;
}

bool SendBuffer::send(int socket) {
  while (!pieces_.empty()) {
    std::array<iovec, 16> parts;
    std::size_t count = 0;
    std::size_t skip = sent_of_first_;
    for (auto piece = pieces_.begin(); piece != pieces_.end() && count < parts.size(); ++piece) {
      const std::string_view bytes = piece->bytes().substr(std::exchange(skip, 0));
      parts[count++] = {const_cast<char*>(bytes.data()), bytes.size()};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    drop(static_cast<std::size_t>(sent));
  }
  return true;
}

void SendBuffer::drop(std::size_t count) {
  pending_ -= count;
  sent_of_first_ += count;
  while (!pieces_.empty() && sent_of_first_ >= pieces_.front().bytes().size()) {
    sent_of_first_ -= pieces_.front().bytes().size();
    pieces_.pop_front();
  }
}

}  // namespace lockstep::net
