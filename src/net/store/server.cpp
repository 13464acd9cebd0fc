#include "net/store/server.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "core/runtime/signal_free_thread.hpp"
#include "net/socket.hpp"
#include "net/store/connection.hpp"

namespace lockstep::net {
namespace {

constexpr std::uint64_t kListener = 0, kWake = 1, kFirstClient = 2;
constexpr Milliseconds kCheckPause{250};
constexpr int kAcceptedAtOnce = 64;

FileDescriptor check_descriptor(int descriptor, const char* what) {
  if (descriptor >= 0) return FileDescriptor(descriptor);
  throw Error(fmt::format("cannot start a store: {}: {}.", what, std::strerror(errno)));
}

FileDescriptor new_event() { return check_descriptor(open_event().release(), "eventfd"); }

FileDescriptor new_spare() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

/// Reserves descriptors for the process that hosts the store.
std::size_t connections_allowed(std::size_t wanted) {
  constexpr rlim_t kForTheProcess = 128;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const rlim_t left = limit.rlim_cur - std::min(limit.rlim_cur / 2, kForTheProcess);
  return std::min<rlim_t>(wanted, left);
}

}  // namespace

/// The server's thread, and the state that it shares with the owner's threads under one lock. The thread
/// holds the lock while it handles one event of one client, and never while it waits.
class Server::Loop {
 public:
  Loop(FileDescriptor listener, ServerOptions options)
      : options_(std::move(options)),
        most_connections_(connections_allowed(options_.most_connections)),
        listener_(std::move(listener)),
        poll_(check_descriptor(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
        wake_(new_event()),
        events_(new_event()),
        spare_(new_spare()),
        address_(local_address(listener_.get())),
        budget_(options_.most_bytes),
        table_(budget_),
        context_{options_.secret, options_.request_time, budget_, table_},
        next_id_(kFirstClient) {
    if (!poll_for(listener_.get(), kListener, EPOLLIN, EPOLL_CTL_ADD) ||
        !poll_for(wake_.get(), kWake, EPOLLIN, EPOLL_CTL_ADD)) {
      throw Error(fmt::format("cannot start a store: epoll_ctl: {}.", std::strerror(errno)));
    }
    thread_ = signal_free_thread([this] { run(); });
  }
  ~Loop() { stop(); }

  /// Runs `action` on the table for the owner.
  template <class Action>
  auto read(Action&& action) {
    const std::lock_guard lock(mutex_);
    return action(table_);
  }
  /// The same; the thread then answers the clients whose waits have ended.
  template <class Action>
  auto change(Action&& action) {
    const std::lock_guard lock(mutex_);
    raise_event(wake_);
    return action(table_);
  }

  void answer(std::uint64_t id, bool verified) {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(id);
    if (found == connections_.end() || found->second.stage() != Connection::Stage::verifying) return;
    Connection& connection = found->second;
    if (verified) {
      connection.serve();
    } else {
      connection.refuse("is not known to belong to this user");
    }
    guarded(id, [&] { settle(connection); });
    raise_event(wake_);
  }

  void stop() {
    std::unique_lock lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    raise_event(wake_);
    lock.unlock();
    thread_.join();
    lock.lock();
    connections_.clear();
    listener_.reset();
  }

 private:
  friend class Server;
  using Id = std::uint64_t;

  void run() {
    std::array<epoll_event, 64> ready;
    for (Milliseconds pause{-1};;) {
      const int count = epoll_wait(poll_.get(), ready.data(), ready.size(), static_cast<int>(pause.count()));
      for (int i = 0; i < count; ++i) {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        handle_event(ready[i].data.u64, ready[i].events);
      }
      verify_local_clients();
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      close_late(Clock::now());
      pause = timed_ ? kCheckPause : Milliseconds(-1);
    }
  }

  void handle_event(Id id, std::uint32_t events) {
    guarded(id, [&] { serve_event(id, events); });
    for (const Id waiter : table_.take_ready()) guarded(waiter, [&] { answer_ended_wait(waiter); });
    if (table_.has_changes()) raise_event(events_);
  }

  /// If memory runs out, the client loses its connection, but the job keeps its store.
  template <class Action>
  void guarded(Id id, Action&& action) {
    try {
      action();
    } catch (const std::exception& error) {
      if (const auto found = connections_.find(id); found != connections_.end()) {
        close(found->second, error.what());
      }
    }
  }

  void serve_event(Id id, std::uint32_t events) {
    if (id == kWake) {
      clear_event(wake_);
      return;
    }
    if (id == kListener) return accept_some();
    const auto found = connections_.find(id);
    // Closed since the poll.
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    // An error is detected by reading from the connection, unless reading is suspended.
    const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
    if (broken && (connection.interest() & EPOLLIN) == 0) return close(connection, "");
    if (broken || (events & EPOLLIN) != 0) connection.receive();
    settle(connection);
  }

  /// Acts on a connection's new stage.
  void settle(Connection& connection) {
    if (connection.stage() == Connection::Stage::verifying) check_plain_client(connection);
    if (connection.stage() == Connection::Stage::proven) return hand_over(connection);
    if (connection.stage() == Connection::Stage::serving) {
      unauthenticated_.erase(connection.id());
      connection.flush();
    }
    if (connection.stage() == Connection::Stage::gone) return close(connection, connection.reason());
    watch_for(connection);
  }

  /// Decides whether a plain client is served. Its user is verified by the kernel on this host, otherwise by
  /// the agent of its host.
  void check_plain_client(Connection& connection) {
    const std::string host = connection.peer().host();
    // The user of a client on this host is always verified, even if the host was allowed.
    const bool local = options_.plain_clients && options_.is_local(connection.peer());
    const bool allowed = options_.every_host || allowed_hosts_.contains(host);
    if (!options_.plain_clients || (!local && !allowed))
      return connection.refuse("is neither of this host and user nor of a host that is allowed");
    if (!local && !options_.verify_peer_uid) return connection.serve();
    connection.wait_for_peer_uid(Clock::now() + options_.handshake_time);
    const PeerUidRequest request{connection.id(), connection.peer(), local_address(connection.descriptor())};
    if (local) return local_clients_.push_back(request);
    pending_.peer_uid_requests.push_back(request);
    raise_event(events_);
  }

  /// Asks the kernel, which is slow on a host with many sockets; done without the lock, so that the owner's
  /// calls do not wait.
  void verify_local_clients() {
    std::unique_lock lock(mutex_);
    const auto clients = std::exchange(local_clients_, {});
    lock.unlock();
    for (const auto& client : clients) {
      bool ours = false;
      try {
        ours = options_.is_our_user(client.peer, client.local);
      } catch (const std::exception&) {
        // Out of memory: the client loses its connection.
      }
      answer(client.id, ours);
    }
  }

  void hand_over(Connection& connection) {
    epoll_ctl(poll_.get(), EPOLL_CTL_DEL, connection.descriptor(), nullptr);
    pending_.peers.push_back({connection.take_socket(), connection.peer(), connection.take_read_ahead()});
    close(connection, "");
    --counts_.turned_away;
    raise_event(events_);
  }

  void answer_ended_wait(Id id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    found->second.end_wait();
    settle(found->second);
  }

  void watch_for(Connection& connection) {
    timed_ = timed_ || connection.deadline() != Deadline::max();
    const std::uint32_t wanted = connection.interest();
    if (wanted == connection.polled) return;
    if (!poll_for(connection.descriptor(), connection.id(), wanted, EPOLL_CTL_MOD))
      return close(connection, "epoll_ctl");
    connection.polled = wanted;
  }

  void close_late(Clock::time_point now) {
    if (!timed_ || now < next_check_) return;
    next_check_ = now + kCheckPause;
    timed_ = false;
    std::vector<Id> late;
    for (const auto& [id, connection] : connections_) {
      if (connection.deadline() <= now) late.push_back(id);
      timed_ = timed_ || connection.deadline() != Deadline::max();
    }
    for (const Id id : late) close(connections_.at(id), "sent no request in time");
  }

  void close(Connection& connection, std::string_view reason) {
    const auto found = connections_.find(connection.id());
    if (unauthenticated_.erase(connection.id()) > 0) {
      note_refused(connection);
      ++counts_.turned_away;
    } else if (!reason.empty()) {
      ++counts_.cut_off;
    }
    // Requests about closed clients must not accumulate if the owner takes its events slowly.
    std::erase_if(pending_.peer_uid_requests,
                  [&](const PeerUidRequest& each) { return each.id == connection.id(); });
    const std::string host = connection.peer().host();
    if (--per_host_[host] == 0) per_host_.erase(host);
    if (!reason.empty()) log_closed(connection.peer(), reason);
    connections_.erase(found);
  }

  /// Records a refused client; only the first few until the owner takes its events.
  void note_refused(const Connection& connection) {
    constexpr std::size_t kMostRefused = 16;
    const bool wrong_secret = connection.failed_proof();
    if ((!wrong_secret && !connection.was_refused()) || pending_.refused_clients.size() >= kMostRefused)
      return;
    pending_.refused_clients.push_back({connection.peer(), wrong_secret});
    raise_event(events_);
  }

  void note_shortage() {
    if (std::exchange(pending_.lacks_descriptors, true)) return;
    raise_event(events_);
  }

  bool poll_for(int descriptor, Id id, std::uint32_t events, int operation) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    return epoll_ctl(poll_.get(), operation, descriptor, &event) == 0;
  }

  /// At most one line per second; the next one contains the number of omitted lines.
  void log_closed(const Address& peer, std::string_view reason) {
    const auto now = Clock::now();
    if (!options_.log || now < next_line_) {
      ++left_out_lines_;
      return;
    }
    next_line_ = now + std::chrono::seconds(1);
    const auto left_out = std::exchange(left_out_lines_, 0);
    options_.log(fmt::format("closed the connection of {}: {}{}", peer.text(), reason,
                             left_out == 0 ? "" : fmt::format(" (and {} more lines like this)", left_out)));
  }

  void accept_some() {
    for (int taken = 0; taken < kAcceptedAtOnce; ++taken) {
      auto accepted = accept_from(listener_.get());
      if (accepted) {
        ++counts_.accepted;
        if (make_room(accepted->address))
          add(std::move(accepted->socket), accepted->address);
        else
          ++counts_.turned_away;
      } else if ((errno != EMFILE && errno != ENFILE) || !accept_despite_shortage()) {
        return;
      }
    }
  }

  /// Makes room for a connection by closing the oldest unauthenticated one; false if that is not possible.
  bool make_room(const Address& peer) {
    const auto of_host = per_host_.find(peer.host());
    if (of_host != per_host_.end() && of_host->second >= options_.most_connections_per_host) return false;
    const bool is_full = connections_.size() >= most_connections_;
    if (is_full && most_connections_ < options_.most_connections) note_shortage();
    const bool crowded = is_full || unauthenticated_.size() >= options_.most_unauthenticated;
    return !crowded || evict_oldest_unauthenticated();
  }

  /// If no descriptor is left, a pending connection would wake the poll again and again. An unauthenticated
  /// connection is closed to make room for it; if there is none, it is accepted with the spare descriptor and
  /// closed.
  bool accept_despite_shortage() {
    note_shortage();
    if (evict_oldest_unauthenticated()) return true;
    spare_.reset();
    const bool taken = accept_from(listener_.get()).has_value();
    spare_ = new_spare();
    return taken;
  }

  bool evict_oldest_unauthenticated() {
    if (unauthenticated_.empty()) return false;
    close(connections_.at(*unauthenticated_.begin()), "made room for another connection");
    return true;
  }

  void add(FileDescriptor socket, const Address& peer) {
    const Id id = next_id_++;
    const int descriptor = socket.get();
    if (!poll_for(descriptor, id, EPOLLIN, EPOLL_CTL_ADD)) return;
    unauthenticated_.insert(id);
    connections_.try_emplace(id, id, std::move(socket), peer, context_,
                             Clock::now() + options_.handshake_time);
    ++per_host_[peer.host()];
    timed_ = true;
  }

  const ServerOptions options_;
  const std::size_t most_connections_;
  FileDescriptor listener_, poll_, wake_, events_, spare_;
  const Address address_;
  std::mutex mutex_;
  MemoryBudget budget_;
  KeyValueTable table_;
  const StoreContext context_;
  /// Addresses, and how often each was allowed.
  std::map<std::string, int> allowed_hosts_;
  std::unordered_map<Id, Connection> connections_;
  /// Unauthenticated connections, the oldest first.
  std::set<Id> unauthenticated_;
  std::unordered_map<std::string, std::size_t> per_host_;
  Id next_id_;
  Clock::time_point next_check_{};
  bool timed_ = false;
  bool stopping_ = false;
  ServerEvents pending_;
  /// Clients of this host whose user must still be verified, which is done without the lock.
  std::vector<PeerUidRequest> local_clients_;
  ServerCounts counts_;
  Clock::time_point next_line_{};
  std::size_t left_out_lines_ = 0;
  std::thread thread_;
};

Server::Server(FileDescriptor listener, ServerOptions options)
    : loop_(std::make_unique<Loop>(std::move(listener), std::move(options))) {}

Server::~Server() = default;

Address Server::address() const { return loop_->address_; }

void Server::set(const std::string& key, const std::string& value) {
  loop_->change([&](KeyValueTable& table) { table.set(wire_key(key), value); });
}

std::optional<std::string> Server::get(const std::string& key) const {
  return loop_->read([&](KeyValueTable& table) {
    const Value value = table.get(wire_key(key));
    return value ? std::optional(value->bytes) : std::nullopt;
  });
}

std::int64_t Server::add(const std::string& key, std::int64_t amount) {
  return loop_->change([&](KeyValueTable& table) { return table.add(wire_key(key), amount); });
}

std::int64_t Server::client_count() const {
  return loop_->read([&](KeyValueTable& table) {
    std::int64_t count = 0;
    if (const Value value = table.get(std::string(kClientCountKey))) {
      std::from_chars(value->bytes.data(), value->bytes.data() + value->bytes.size(), count);
    }
    return count;
  });
}

void Server::watch(const std::string& prefix) {
  loop_->change([&](KeyValueTable& table) { table.watch(wire_key(prefix)); });
}

int Server::events_descriptor() const { return loop_->events_.get(); }

ServerEvents Server::take_events() {
  const std::lock_guard lock(loop_->mutex_);
  clear_event(loop_->events_);
  ServerEvents events = std::exchange(loop_->pending_, {});
  events.changed_keys = loop_->table_.take_changes();
  for (auto& key : events.changed_keys) key.erase(0, kKeyPrefix.size());
  return events;
}

void Server::allow(const Address& host) {
  const std::lock_guard lock(loop_->mutex_);
  ++loop_->allowed_hosts_[host.host()];
}

void Server::forget(const Address& host) {
  const std::lock_guard lock(loop_->mutex_);
  const auto found = loop_->allowed_hosts_.find(host.host());
  if (found != loop_->allowed_hosts_.end() && --found->second <= 0) loop_->allowed_hosts_.erase(found);
}

void Server::answer(std::uint64_t id, bool verified) { loop_->answer(id, verified); }

void Server::clear(const std::string& kept_prefix) {
  const std::lock_guard lock(loop_->mutex_);
  std::vector<std::uint64_t> clients;
  for (const auto& [id, connection] : loop_->connections_) {
    if (loop_->unauthenticated_.count(id) == 0) clients.push_back(id);
  }
  for (const auto id : clients) loop_->close(loop_->connections_.at(id), "");
  loop_->table_.clear(wire_key(kept_prefix));
}

ServerCounts Server::counts() const {
  const std::lock_guard lock(loop_->mutex_);
  ServerCounts counts = loop_->counts_;
  counts.open = loop_->connections_.size();
  counts.bytes = loop_->budget_.used();
  return counts;
}

void Server::stop() { loop_->stop(); }

}  // namespace lockstep::net
