#include "net/store/connection.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

namespace lockstep::net {
namespace {

constexpr std::size_t kUnauthenticatedRead = 64;
constexpr std::size_t kClientsRead = 64 * 1024;
constexpr Deadline kNone = Deadline::max();

/// Few bytes to a fresh connection: there is room for them, or something is wrong.
bool send_few(int socket, const std::string& bytes) {
  return send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

void Connection::receive() {
  std::array<char, kClientsRead> buffer;
  const std::size_t most = stage_ == Stage::serving ? kClientsRead : kUnauthenticatedRead;
  const ssize_t got = recv(socket_.get(), buffer.data(), most, MSG_DONTWAIT);
  if (got < 0 && would_block()) return;
  if (got < 0) return leave(std::strerror(errno));
  if (got == 0) return leave("");
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
  if (stage_ == Stage::unauthenticated) {
    authenticate(bytes);
  } else if (stage_ == Stage::serving) {
    execute(bytes);
  }
}

void Connection::authenticate(std::string_view bytes) {
  using Result = ServerHandshake::Result;
  Result result = Result::undecided;
  while (result == Result::undecided && !bytes.empty()) {
    result = handshake_.receive(bytes);
    if (result == Result::plain) break;  // Its answer waits for the admission.
    if (!send_few(socket_.get(), handshake_.take_answer())) return leave("does not take what it asked for");
  }
  unread_ = bytes;
  failed_proof_ = result == Result::wrong_secret;
  if (failed_proof_) return leave("knows another secret");
  if (result == Result::refused) return leave("is no client of this job");
  if (result == Result::plain) stage_ = Stage::verifying;
  if (result == Result::control) stage_ = Stage::proven;
  if (result == Result::store) serve();
}

template <class Action>
void Connection::guarded(Action&& action) {
  try {
    action();
  } catch (const std::exception& error) {
    leave(error.what());
  }
}

void Connection::serve() {
  stage_ = Stage::serving;
  deadline_ = kNone;
  unread_reservation_ = Reservation(context_.budget);
  guarded([&] {
    session_ = std::make_unique<StoreSession>(id_, context_.table, context_.budget);
    session_->send_buffer().put(handshake_.take_answer());
  });
}

void Connection::execute(std::string_view bytes) {
  guarded([&] {
    const std::uint64_t before = session_->executed();
    session_->receive(bytes);
    unread_reservation_.clear();
    unread_ = std::string(bytes);
    unread_reservation_.grow(unread_.size(), "no memory for a client that does not read its answers.");
    set_deadline(session_->executed() != before);
  });
}

void Connection::flush() {
  if (stage_ != Stage::serving) return;
  if (!unread_.empty() && !session_->is_congested()) execute(std::string(unread_));
  if (stage_ != Stage::serving || session_->send_buffer().empty()) return;
  const std::size_t before = session_->send_buffer().pending();
  if (!session_->send_buffer().send(socket_.get())) return leave(std::strerror(errno));
  set_deadline(session_->send_buffer().pending() != before);
}

void Connection::end_wait() {
  guarded([&] { session_->end_wait(); });
}

std::uint32_t Connection::interest() const {
  if (stage_ == Stage::unauthenticated) return EPOLLIN;
  std::uint32_t events = 0;
  if (stage_ != Stage::serving) return events;
  if (!session_->send_buffer().empty() || !unread_.empty()) events |= EPOLLOUT;
  if (!session_->is_congested() && unread_.empty()) events |= EPOLLIN;
  return events;
}

void Connection::leave(std::string reason) {
  stage_ = Stage::gone;
  reason_ = std::move(reason);
}

void Connection::set_deadline(bool progress) {
  const bool busy = session_->is_inside_request() || !session_->send_buffer().empty() || !unread_.empty();
  if (!busy) {
    deadline_ = kNone;
  } else if (progress || deadline_ == kNone) {
    deadline_ = Clock::now() + context_.request_time;
  }
}

}  // namespace lockstep::net
