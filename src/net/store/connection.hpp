#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "net/handshake.hpp"
#include "net/store/session.hpp"

namespace lockstep::net {

/// Shared by all connections of a server.
struct StoreContext {
  std::string_view secret;
  Milliseconds request_time;
  MemoryBudget& budget;
  KeyValueTable& table;
};

/// One client of the server, unauthenticated at first. Reads and writes its socket without blocking.
class Connection {
 public:
  enum class Stage { unauthenticated, verifying, proven, serving, gone };

  Connection(std::uint64_t id, FileDescriptor socket, Address peer, const StoreContext& context,
             Deadline deadline)
      : id_(id),
        socket_(std::move(socket)),
        peer_(std::move(peer)),
        context_(context),
        handshake_(context.secret),
        deadline_(deadline) {}

  /// Reads once and processes the bytes. Afterwards the stage may be verifying (a plain client asks to be
  /// allowed), proven (a control connection, to be handed over), serving, or gone.
  void receive() {
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

  /// Sends pending bytes.
  void flush() {
    if (stage_ != Stage::serving) return;
    if (!unread_.empty() && !session_->is_congested()) execute(std::string(unread_));
    if (stage_ != Stage::serving || session_->send_buffer().empty()) return;
    const std::size_t before = session_->send_buffer().pending();
    if (!session_->send_buffer().send(socket_.get())) return leave(std::strerror(errno));
    set_deadline(session_->send_buffer().pending() != before);
  }

  /// Admits a client.
  void serve() {
    stage_ = Stage::serving;
    deadline_ = kNone;
    unread_reservation_ = Reservation(context_.budget);
    guarded([&] {
      session_ = std::make_unique<ClientSession>(id_, context_.table, context_.budget);
      session_->send_buffer().put(handshake_.take_answer());
    });
  }

  /// Waits until the owner calls serve() or refuse().
  void wait_for_peer_uid(Deadline deadline) { deadline_ = deadline; }
  void refuse(std::string reason) {
    was_refused_ = true;
    leave(std::move(reason));
  }
  /// Called when the table has ended this client's wait.
  void end_wait() {
    guarded([&] { session_->end_wait(); });
  }

  std::uint64_t id() const { return id_; }
  Stage stage() const { return stage_; }
  const Address& peer() const { return peer_; }
  int descriptor() const { return socket_.get(); }
  Deadline deadline() const { return deadline_; }
  /// Events to poll for: EPOLLIN, EPOLLOUT.
  std::uint32_t interest() const {
    if (stage_ == Stage::unauthenticated) return EPOLLIN;
    std::uint32_t events = 0;
    if (stage_ != Stage::serving) return events;
    if (!session_->send_buffer().empty() || !unread_.empty()) events |= EPOLLOUT;
    if (!session_->is_congested() && unread_.empty()) events |= EPOLLIN;
    return events;
  }

  /// Whether refuse() was called.
  bool was_refused() const { return was_refused_; }
  /// Whether it proved another secret.
  bool failed_proof() const { return failed_proof_; }
  /// The reason why it is gone.
  const std::string& reason() const { return reason_; }

  /// The events that the owner polls for now.
  std::uint32_t polled = EPOLLIN;

  FileDescriptor take_socket() { return std::move(socket_); }
  std::string take_read_ahead() { return std::move(unread_); }

 private:
  static constexpr std::size_t kUnauthenticatedRead = 64;
  static constexpr std::size_t kClientsRead = 64 * 1024;
  static constexpr Deadline kNone = Deadline::max();

  void authenticate(std::string_view bytes) {
    using Result = ServerHandshake::Result;
    Result result = Result::undecided;
    while (result == Result::undecided && !bytes.empty()) {
      result = handshake_.receive(bytes);
      if (result == Result::plain) break;  // The answer is sent once it is allowed.
      const std::string answer = handshake_.take_answer();
      // A few bytes always fit into the buffer of a new connection; otherwise something is wrong.
      if (send(descriptor(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
          static_cast<ssize_t>(answer.size()))
        return leave("does not read its answers");
    }
    unread_ = bytes;
    failed_proof_ = result == Result::wrong_secret;
    if (failed_proof_) return leave("knows another secret");
    if (result == Result::refused) return leave("is not a client of this job");
    if (result == Result::plain) stage_ = Stage::verifying;
    if (result == Result::control) stage_ = Stage::proven;
    if (result == Result::store) serve();
  }

  void execute(std::string_view bytes) {
    guarded([&] {
      const std::uint64_t before = session_->executed();
      session_->receive(bytes);
      unread_reservation_.clear();
      unread_ = std::string(bytes);
      unread_reservation_.grow(unread_.size(), "no memory for a client that does not read its answers.");
      set_deadline(session_->executed() != before);
    });
  }

  void leave(std::string reason) {
    stage_ = Stage::gone;
    reason_ = std::move(reason);
  }

  /// Closes the connection of a client that sends an invalid request, or for which there is no memory.
  template <class Action>
  void guarded(Action&& action) {
    try {
      action();
    } catch (const std::exception& error) {
      leave(error.what());
    }
  }

  void set_deadline(bool progress) {
    const bool busy = session_->is_inside_request() || !session_->send_buffer().empty() || !unread_.empty();
    if (!busy) {
      deadline_ = kNone;
    } else if (progress || deadline_ == kNone) {
      deadline_ = Clock::now() + context_.request_time;
    }
  }

  std::uint64_t id_;
  FileDescriptor socket_;
  Address peer_;
  const StoreContext& context_;
  ServerHandshake handshake_;
  Deadline deadline_;
  Stage stage_ = Stage::unauthenticated;
  std::unique_ptr<ClientSession> session_;
  /// Read and not yet processed: a few bytes, or those that a congested client has sent.
  std::string unread_;
  Reservation unread_reservation_;
  std::string reason_;
  bool was_refused_ = false;
  bool failed_proof_ = false;
};

}  // namespace lockstep::net
