#include "net/store/session.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "net/file_descriptor.hpp"

namespace lockstep::net {
namespace {

/// With more pending bytes than this, no more requests are accepted.
constexpr std::size_t kCongestion = 256 * 1024;
/// Maximum size of a piece of copied bytes.
constexpr std::size_t kFullPiece = 4096;
constexpr const char* kNoMemoryForAnswers = "no memory for the answers to a client that does not read them.";

}  // namespace

void SendBuffer::begin_piece(Value shared) {
  Piece piece{{}, std::move(shared), Reservation(budget_)};
  piece.reservation.grow(kObjectOverhead, kNoMemoryForAnswers);
  pieces_.push_back(std::move(piece));
}

void SendBuffer::put(std::string_view bytes) {
  if (pieces_.empty() || pieces_.back().shared || pieces_.back().copied.size() + bytes.size() > kFullPiece) {
    begin_piece(nullptr);
  }
  // A growing string may have twice the capacity it needs.
  pieces_.back().reservation.grow(2 * bytes.size(), kNoMemoryForAnswers);
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
  begin_piece(value);
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
    if (sent < 0) return would_block();
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

bool ClientSession::is_congested() const { return send_buffer_.pending() > kCongestion; }

void ClientSession::receive(std::string_view& bytes) {
  while (!bytes.empty() && !is_congested()) {
    if (auto request = parser_.feed(bytes)) {
      execute(*request);
      ++executed_;
    }
  }
}

void ClientSession::execute(Request& request) {
  auto& strings = request.strings;
  switch (request.type) {
    case QueryType::validate:
      break;  // The parser rejects it.
    case QueryType::set:
      return table_.set(strings[0], std::move(strings[1]));
    case QueryType::compare_set:
      if (const Value held = table_.compare_set(strings[0], strings[1], std::move(strings[2]))) {
        return send_buffer_.put_value(held);
      }
      answer_number(strings[1].size());
      return send_buffer_.put(strings[1]);
    case QueryType::get:
      return send_buffer_.put_value(table_.get(strings[0]));
    case QueryType::add:
      return answer_number(
          static_cast<std::uint64_t>(table_.add(strings[0], static_cast<std::int64_t>(request.number))));
    case QueryType::check: {
      const bool all = std::ranges::all_of(strings, [&](auto& key) { return table_.contains(key); });
      return send_buffer_.put({all ? &kReady : &kNotReady, 1});
    }
    case QueryType::wait:
      if (table_.wait(id_, strings)) end_wait();
      return;
    case QueryType::count_keys:
      return answer_number(table_.size());
    case QueryType::delete_key:
      return answer_number(table_.erase(strings[0]) ? 1 : 0);
    case QueryType::append:
      return table_.append(strings[0], strings[1]);
    case QueryType::multi_get:
      for (const auto& key : strings) send_buffer_.put_value(table_.get(key));
      return;
    case QueryType::multi_set:
      for (std::size_t i = 0; i + 1 < strings.size(); i += 2) {
        table_.set(strings[i], std::move(strings[i + 1]));
      }
      return;
    case QueryType::cancel_wait:
      table_.cancel(id_);
      return send_buffer_.put({&kWaitCancelled, 1});
    case QueryType::ping:
      return send_buffer_.put(wire_number(request.number).substr(0, 4));
    case QueryType::queue_push:
      return table_.push(strings[0], std::move(strings[1]));
    case QueryType::queue_pop:
      answer_number(table_.length(strings[0]));
      if (const Value value = table_.pop(strings[0])) send_buffer_.put_value(value);
      return;
    case QueryType::queue_length:
      return answer_number(table_.length(strings[0]));
    case QueryType::list_keys:
      answer_number(table_.size());
      for (const auto key : table_.keys()) {
        answer_number(key.size());
        send_buffer_.put(key);
      }
      return;
  }
}

}  // namespace lockstep::net
