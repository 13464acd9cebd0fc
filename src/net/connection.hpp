#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "net/address.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"
#include "net/handshake.hpp"
#include "net/store_session.hpp"

namespace lockstep::net {

/// One client of the server: unauthenticated until it is served. Reads and writes its socket, without
/// waiting.
class Connection {
 public:
  enum class Stage { unauthenticated, verifying, proven, serving, gone };

  Connection(std::uint64_t id, FileDescriptor socket, Address peer, std::string_view secret,
             Deadline deadline)
      : id_(id),
        socket_(std::move(socket)),
        peer_(std::move(peer)),
        handshake_(secret),
        deadline_(deadline) {}

  /// Reads once, and passes on what came. Afterwards the stage may be: verify_peer_uid (a plain client asks
  /// to be let in), proven (a control connection, to be handed over), serving, or gone.
  void receive(KeyValueTable& table, MemoryBudget& budget, Milliseconds request_time);
  /// Sends what there is to send.
  void flush(Milliseconds request_time);
  /// Lets a plain client in.
  void serve(KeyValueTable& table, MemoryBudget& budget);
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

  FileDescriptor take_socket() { return std::move(socket_); }
  std::string take_read_ahead() { return std::move(unread_); }

 private:
  void meet(std::string_view bytes, KeyValueTable& table, MemoryBudget& budget);
  void talk(std::string_view bytes, Milliseconds request_time);
  void keep(std::string_view bytes);
  void leave(std::string reason);
  void set_deadline(bool progress, Milliseconds request_time);

  std::uint64_t id_;
  FileDescriptor socket_;
  Address peer_;
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
