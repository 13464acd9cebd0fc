#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <string>

#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "net/handshake.hpp"
#include "net/store/session.hpp"

namespace lockstep::net {

/// What all connections of a server share.
struct StoreContext {
  std::string_view secret;
  Milliseconds request_time;
  MemoryBudget& budget;
  KeyValueTable& table;
};

/// One client of the server: unauthenticated until it is served. Reads and writes its socket, without
/// waiting.
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

  /// Reads once, and passes on what came. Afterwards the stage may be: verifying (a plain client asks to be
  /// let in), proven (a control connection, to be handed over), serving, or gone.
  void receive();
  /// Sends what there is to send.
  void flush();
  /// Lets a plain client in.
  void serve();
  /// Leaves it to the owner to say serve() or refuse().
  void wait_for_peer_uid(Deadline deadline) { deadline_ = deadline; }
  void refuse(std::string reason) {
    was_refused_ = true;
    leave(std::move(reason));
  }
  /// The table says that this client's wait has ended.
  void end_wait();

  std::uint64_t id() const { return id_; }
  Stage stage() const { return stage_; }
  const Address& peer() const { return peer_; }
  int descriptor() const { return socket_.get(); }
  Deadline deadline() const { return deadline_; }
  /// What to poll for: EPOLLIN, EPOLLOUT.
  std::uint32_t interest() const;
  /// Whether refuse() was called.
  bool was_refused() const { return was_refused_; }
  /// Whether it claimed to know the secret and proved another one.
  bool failed_proof() const { return failed_proof_; }
  /// Why it is gone.
  const std::string& reason() const { return reason_; }

  /// What its owner polls for now.
  std::uint32_t polled = EPOLLIN;

  FileDescriptor take_socket() { return std::move(socket_); }
  std::string take_read_ahead() { return std::move(unread_); }

 private:
  void authenticate(std::string_view bytes);
  void execute(std::string_view bytes);
  void leave(std::string reason);
  /// A client that sends what is no request, or for which there is no memory, leaves.
  template <class Action>
  void guarded(Action&& action);
  void set_deadline(bool progress);

  std::uint64_t id_;
  FileDescriptor socket_;
  Address peer_;
  const StoreContext& context_;
  ServerHandshake handshake_;
  Deadline deadline_;
  Stage stage_ = Stage::unauthenticated;
  std::unique_ptr<StoreSession> session_;
  /// Read, and not yet taken by anyone: a few bytes, or those that a congested client sent on top.
  std::string unread_;
  Reservation unread_reservation_;
  std::string reason_;
  bool was_refused_ = false;
  bool failed_proof_ = false;
};

}  // namespace lockstep::net
