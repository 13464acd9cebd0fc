#pragma once

#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "net/access_policy.hpp"
#include "net/connection.hpp"
#include "net/rate_limited_log.hpp"
#include "net/server.hpp"

namespace lockstep::net {

/// The server's thread, and what it shares with the owner's under one lock. The thread holds the lock while
/// it serves one client's one event, and never while it waits.
class Server::Loop {
 public:
  Loop(FileDescriptor listener, ServerOptions options);
  ~Loop() { stop(); }

  /// Runs `action` on the table for the owner.
  template <class Action>
  auto read(Action&& action) {
    const std::lock_guard lock(mutex_);
    return action(table_);
  }
  /// The same; clients whose waits it ends are then answered by the thread.
  template <class Action>
  auto change(Action&& action) {
    const std::lock_guard lock(mutex_);
    wake();
    return action(table_);
  }

  void allow(const Address& host);
  void forget(const Address& host);
  void answer(std::uint64_t id, bool verified);
  void clear(const std::string& kept_prefix);
  ServerEvents take_events();
  ServerCounts counts();
  void stop();

  const Address& address() const { return address_; }
  int events_descriptor() const { return events_.get(); }

 private:
  using Id = std::uint64_t;

  void run();
  void guarded_event(Id id, std::uint32_t events);
  void serve_event(Id id, std::uint32_t events);
  void accept_some();
  bool make_room(const Address& peer);
  bool accept_despite_shortage();
  void add(FileDescriptor socket, const Address& peer);
  void settle(Connection& connection);
  void check_plain_client(Connection& connection);
  void hand_over(Connection& connection);
  void serve(Connection& connection);
  void answer_ended_waits();
  void watch_for(Connection& connection);
  void close(Connection& connection, std::string_view reason);
  bool evict_oldest_unauthenticated();
  void note_refused(const Connection& connection);
  void verify_local_clients();
  void close_late(Clock::time_point now);
  Milliseconds pause();
  bool poll_for(int descriptor, Id id, std::uint32_t events, int operation);
  void wake();
  void tell_owner();

  struct Entry {
    Connection connection;
    std::uint32_t polled = 0;
    std::list<Id>::iterator place_in_queue;
    bool unauthenticated = true;
  };

  const ServerOptions options_;
  const std::size_t most_connections_;
  FileDescriptor listener_, poll_, wake_, events_, spare_;
  const Address address_;
  std::mutex mutex_;
  MemoryBudget budget_;
  KeyValueTable table_;
  AccessPolicy access_policy_;
  std::unordered_map<Id, Entry> connections_;
  std::list<Id> unauthenticated_;
  std::unordered_map<std::string, std::size_t> per_host_;
  Id next_id_;
  Clock::time_point next_check_{};
  bool timed_ = false;
  bool stopping_ = false;
  ServerEvents pending_;
  /// Clients of this host whose user is still to be asked for, which is done without the lock.
  std::vector<PeerUidRequest> local_clients_;
  ServerCounts counts_;
  RateLimitedLog log_;
  std::thread thread_;
};

}  // namespace lockstep::net
