#include "net/connection.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "net/store_error.hpp"

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

void Connection::receive(KeyValueTable& table, MemoryBudget& budget, Milliseconds request_time) {
  std::array<char, kClientsRead> buffer;
  const std::size_t most = stage_ == Stage::serving ? kClientsRead : kUnauthenticatedRead;
  const ssize_t got = recv(socket_.get(), buffer.data(), most, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got < 0) return leave(std::strerror(errno));
  if (got == 0) return leave("");
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
  if (stage_ == Stage::unauthenticated)
    meet(bytes, table, budget);
  else if (stage_ == Stage::serving)
    talk(bytes, request_time);
}

void Connection::meet(std::string_view bytes, KeyValueTable& table, MemoryBudget& budget) {
  auto verdict = ServerHandshake::Verdict::undecided;
  while (verdict == ServerHandshake::Verdict::undecided && !bytes.empty()) {
    verdict = handshake_.receive(bytes);
    if (verdict == ServerHandshake::Verdict::plain) break;  // Its answer waits for the admission.
    if (!send_few(socket_.get(), handshake_.take_answer())) return leave("does not take what it asked for");
  }
  unread_ = bytes;
  failed_proof_ = verdict == ServerHandshake::Verdict::wrong_secret;
  if (failed_proof_) return leave("knows another secret");
  if (verdict == ServerHandshake::Verdict::refused) return leave("is no client of this job");
  if (verdict == ServerHandshake::Verdict::plain) stage_ = Stage::verifying;
  if (verdict == ServerHandshake::Verdict::control) stage_ = Stage::proven;
  if (verdict == ServerHandshake::Verdict::store) serve(table, budget);
}

void Connection::serve(KeyValueTable& table, MemoryBudget& budget) {
  stage_ = Stage::serving;
  deadline_ = kNone;
  unread_reservation_ = Reservation(budget);
  try {
    session_ = std::make_unique<StoreSession>(id_, table, budget);
    session_->send_buffer().put(handshake_.take_answer());
  } catch (const std::exception& error) {
    leave(error.what());
  }
}

void Connection::talk(std::string_view bytes, Milliseconds request_time) {
  const std::uint64_t before = session_->executed();
  try {
    session_->receive(bytes);
    keep(bytes);
  } catch (const std::exception& error) {
    return leave(error.what());
  }
  set_deadline(session_->executed() != before, request_time);
}

void Connection::keep(std::string_view bytes) {
  unread_reservation_.clear();
  unread_ = std::string(bytes);
  if (!unread_reservation_.grow(unread_.size()))
    throw StoreFull("no memory for a client that does not read its answers.");
}

void Connection::flush(Milliseconds request_time) {
  if (stage_ != Stage::serving) return;
  if (!unread_.empty() && !session_->is_congested()) talk(std::string(unread_), request_time);
  if (stage_ != Stage::serving || session_->send_buffer().empty()) return;
  const std::size_t before = session_->send_buffer().pending();
  if (!session_->send_buffer().send(socket_.get())) return leave(std::strerror(errno));
  set_deadline(session_->send_buffer().pending() != before, request_time);
}

void Connection::end_wait() {
  try {
    session_->end_wait();
  } catch (const std::exception& error) {
    leave(error.what());
  }
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

void Connection::set_deadline(bool progress, Milliseconds request_time) {
  const bool busy = session_->is_inside_request() || !session_->send_buffer().empty() || !unread_.empty();
  if (!busy) {
    deadline_ = kNone;
  } else if (progress || deadline_ == kNone) {
    deadline_ = Clock::now() + request_time;
  }
}

}  // namespace lockstep::net
