#include "net/server_loop.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "net/signal_free_thread.hpp"
#include "net/socket.hpp"

namespace lockstep::net {
namespace {

constexpr std::uint64_t kListener = 0, kWake = 1, kFirstClient = 2;
constexpr Milliseconds kCheckPause{250};
constexpr int kAcceptedAtOnce = 64;

FileDescriptor checked(int descriptor, const char* what) {
  if (descriptor < 0)
    throw Error(std::string("cannot start a store: ") + what + ": " + std::strerror(errno) + ".");
  return FileDescriptor(descriptor);
}

FileDescriptor new_event() { return checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"); }

void raise(const FileDescriptor& event) { eventfd_write(event.get(), 1); }

void lower(const FileDescriptor& event) {
  eventfd_t count;
  eventfd_read(event.get(), &count);
}

FileDescriptor new_spare() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

/// The process that hosts the store needs descriptors for itself.
std::size_t connections_allowed(std::size_t wanted) {
  constexpr rlim_t kForTheProcess = 128;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const rlim_t left = limit.rlim_cur - std::min(limit.rlim_cur / 2, kForTheProcess);
  return std::min<rlim_t>(wanted, left);
}

}  // namespace

Server::Loop::Loop(FileDescriptor listener, ServerOptions options)
    : options_(std::move(options)),
      most_connections_(connections_allowed(options_.most_connections)),
      listener_(std::move(listener)),
      poll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_(new_event()),
      events_(new_event()),
      spare_(new_spare()),
      address_(local_address(listener_.get())),
      budget_(options_.most_bytes),
      table_(budget_),
      access_policy_(options_),
      next_id_(kFirstClient),
      log_(options_.log) {
  if (!poll_for(listener_.get(), kListener, EPOLLIN, EPOLL_CTL_ADD) ||
      !poll_for(wake_.get(), kWake, EPOLLIN, EPOLL_CTL_ADD)) {
    throw Error(std::string("cannot start a store: epoll_ctl: ") + std::strerror(errno) + ".");
  }
  thread_ = signal_free_thread([this] { run(); });
}

void Server::Loop::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    wake();
  }
  thread_.join();
  const std::lock_guard lock(mutex_);
  connections_.clear();
  listener_.reset();
}

void Server::Loop::run() {
  std::array<epoll_event, 64> ready;
  for (;;) {
    const int count = epoll_wait(poll_.get(), ready.data(), ready.size(), static_cast<int>(pause().count()));
    for (int i = 0; i < count; ++i) {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      guarded_event(ready[i].data.u64, ready[i].events);
    }
    verify_local_clients();
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    close_late(Clock::now());
  }
}

Milliseconds Server::Loop::pause() {
  const std::lock_guard lock(mutex_);
  return timed_ ? kCheckPause : Milliseconds(-1);
}

/// Memory that is not there costs the client that wanted it its connection, not the job its store.
void Server::Loop::guarded_event(Id id, std::uint32_t events) {
  try {
    serve_event(id, events);
    answer_ended_waits();
  } catch (const std::exception& error) {
    if (const auto found = connections_.find(id); found != connections_.end()) {
      close(found->second.connection, error.what());
    }
  }
  if (table_.has_changes()) tell_owner();
}

void Server::Loop::serve_event(Id id, std::uint32_t events) {
  if (id == kWake) return lower(wake_);
  if (id == kListener) return accept_some();
  const auto found = connections_.find(id);
  // Closed since the poll.
  if (found == connections_.end()) return;
  Connection& connection = found->second.connection;
  // A broken connection is found out by reading from it, unless it may not be read from.
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if (broken && (connection.interest() & EPOLLIN) == 0) return close(connection, "");
  if (broken || (events & EPOLLIN) != 0) connection.receive(table_, budget_, options_.request_time);
  settle(connection);
}

/// What follows from a connection's new stage.
void Server::Loop::settle(Connection& connection) {
  if (connection.stage() == Connection::Stage::verifying) check_plain_client(connection);
  if (connection.stage() == Connection::Stage::proven) return hand_over(connection);
  if (connection.stage() == Connection::Stage::serving) serve(connection);
  if (connection.stage() == Connection::Stage::gone) return close(connection, connection.reason());
  watch_for(connection);
}

void Server::Loop::serve(Connection& connection) {
  Entry& entry = connections_.at(connection.id());
  if (std::exchange(entry.unauthenticated, false)) unauthenticated_.erase(entry.place_in_queue);
  connection.flush(options_.request_time);
}

void Server::Loop::check_plain_client(Connection& connection) {
  const PeerUidRequest request{connection.id(), connection.peer(), local_address(connection.descriptor())};
  switch (access_policy_.of(connection.peer())) {
    case AccessPolicy::Verdict::serve:
      return connection.serve(table_, budget_);
    case AccessPolicy::Verdict::refuse:
      return connection.refuse("is neither of this host and user nor of a host that is allowed");
    case AccessPolicy::Verdict::ask_kernel:
      connection.wait_for_peer_uid(Clock::now() + options_.handshake_time);
      local_clients_.push_back(request);
      return;
    case AccessPolicy::Verdict::ask_peer:
      connection.wait_for_peer_uid(Clock::now() + options_.handshake_time);
      pending_.peer_uid_requests.push_back(request);
      return tell_owner();
  }
}

/// Asks the kernel, which takes its time where a host has many sockets: the owner's calls do not wait for it.
void Server::Loop::verify_local_clients() {
  std::vector<PeerUidRequest> clients;
  {
    const std::lock_guard lock(mutex_);
    clients.swap(local_clients_);
  }
  for (const auto& client : clients) {
    bool ours = false;
    try {
      ours = options_.is_our_user(client.peer, client.local);
    } catch (const std::exception&) {
      // Memory that is not there costs the client its connection, not the job its store.
    }
    answer(client.id, ours);
  }
}

void Server::Loop::answer(std::uint64_t id, bool verified) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.connection.stage() != Connection::Stage::verifying) return;
  Connection& connection = found->second.connection;
  if (verified) {
    connection.serve(table_, budget_);
  } else {
    connection.refuse("is not known to be of our user");
  }
  settle(connection);
  wake();
}

void Server::Loop::hand_over(Connection& connection) {
  epoll_ctl(poll_.get(), EPOLL_CTL_DEL, connection.descriptor(), nullptr);
  pending_.peers.push_back({connection.take_socket(), connection.peer(), connection.take_read_ahead()});
  close(connection, "");
  --counts_.turned_away;
  tell_owner();
}

void Server::Loop::answer_ended_waits() {
  for (const Id id : table_.take_ready()) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    found->second.connection.end_wait();
    settle(found->second.connection);
  }
}

void Server::Loop::watch_for(Connection& connection) {
  Entry& entry = connections_.at(connection.id());
  timed_ = timed_ || connection.deadline() != Deadline::max();
  const std::uint32_t wanted = connection.interest();
  if (wanted == entry.polled) return;
  if (!poll_for(connection.descriptor(), connection.id(), wanted, EPOLL_CTL_MOD))
    return close(connection, "epoll_ctl");
  entry.polled = wanted;
}

void Server::Loop::close_late(Clock::time_point now) {
  if (!timed_ || now < next_check_) return;
  next_check_ = now + kCheckPause;
  timed_ = false;
  std::vector<Id> late;
  for (const auto& [id, entry] : connections_) {
    if (entry.connection.deadline() <= now) late.push_back(id);
    timed_ = timed_ || entry.connection.deadline() != Deadline::max();
  }
  for (const Id id : late) close(connections_.at(id).connection, "has not said in time what it wants");
}

void Server::Loop::close(Connection& connection, std::string_view reason) {
  const auto found = connections_.find(connection.id());
  if (found->second.unauthenticated) {
    note_refused(connection);
    unauthenticated_.erase(found->second.place_in_queue);
    ++counts_.turned_away;
  } else if (!reason.empty()) {
    ++counts_.cut_off;
  }
  // An owner that is slow to take its events must not collect questions on clients that have gone.
  std::erase_if(pending_.peer_uid_requests,
                [&](const PeerUidRequest& each) { return each.id == connection.id(); });
  const std::string host = connection.peer().host();
  if (--per_host_[host] == 0) per_host_.erase(host);
  if (!reason.empty()) {
    log_.line(
        [&] { return "closed the connection of " + connection.peer().text() + ": " + std::string(reason); });
  }
  connections_.erase(found);
}

/// An owner that is slow to take its events gets the first few.
void Server::Loop::note_refused(const Connection& connection) {
  constexpr std::size_t kMostRefused = 16;
  const bool wrong_secret = connection.failed_proof();
  if ((!wrong_secret && !connection.was_refused()) || pending_.refused_clients.size() >= kMostRefused) return;
  pending_.refused_clients.push_back({connection.peer(), wrong_secret});
  tell_owner();
}

bool Server::Loop::poll_for(int descriptor, Id id, std::uint32_t events, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return epoll_ctl(poll_.get(), operation, descriptor, &event) == 0;
}

void Server::Loop::wake() { raise(wake_); }
void Server::Loop::tell_owner() { raise(events_); }

ServerEvents Server::Loop::take_events() {
  const std::lock_guard lock(mutex_);
  lower(events_);
  ServerEvents events = std::exchange(pending_, {});
  events.changed_keys = table_.take_changes();
  for (auto& key : events.changed_keys) key.erase(0, kKeyPrefix.size());
  return events;
}

void Server::Loop::allow(const Address& host) {
  const std::lock_guard lock(mutex_);
  access_policy_.allow(host);
}

void Server::Loop::forget(const Address& host) {
  const std::lock_guard lock(mutex_);
  access_policy_.forget(host);
}

void Server::Loop::clear(const std::string& kept_prefix) {
  const std::lock_guard lock(mutex_);
  std::vector<Id> clients;
  for (const auto& [id, entry] : connections_) {
    if (!entry.unauthenticated) clients.push_back(id);
  }
  for (const Id id : clients) close(connections_.at(id).connection, "");
  table_.clear(kept_prefix);
}

ServerCounts Server::Loop::counts() {
  const std::lock_guard lock(mutex_);
  ServerCounts counts = counts_;
  counts.open = connections_.size();
  counts.bytes = budget_.used();
  return counts;
}

void Server::Loop::accept_some() {
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

/// Room for one more, at the cost of the oldest unauthenticated connection; false: there is none.
bool Server::Loop::make_room(const Address& peer) {
  const auto of_host = per_host_.find(peer.host());
  if (of_host != per_host_.end() && of_host->second >= options_.most_connections_per_host) return false;
  const bool crowded =
      unauthenticated_.size() >= options_.most_unauthenticated || connections_.size() >= most_connections_;
  return !crowded || evict_oldest_unauthenticated();
}

/// With no descriptor left, a waiting connection would wake the poll without end: an unauthenticated one
/// makes room for it, or it is taken with the descriptor kept for this, and closed.
bool Server::Loop::accept_despite_shortage() {
  if (evict_oldest_unauthenticated()) return true;
  spare_.reset();
  const bool taken = accept_from(listener_.get()).has_value();
  spare_ = new_spare();
  return taken;
}

bool Server::Loop::evict_oldest_unauthenticated() {
  if (unauthenticated_.empty()) return false;
  close(connections_.at(unauthenticated_.front()).connection, "made room for another connection");
  return true;
}

void Server::Loop::add(FileDescriptor socket, const Address& peer) {
  const Id id = next_id_++;
  const int descriptor = socket.get();
  if (!poll_for(descriptor, id, EPOLLIN, EPOLL_CTL_ADD)) return;
  unauthenticated_.push_back(id);
  Connection connection(id, std::move(socket), peer, options_.secret, Clock::now() + options_.handshake_time);
  connections_.emplace(id, Entry{std::move(connection), EPOLLIN, std::prev(unauthenticated_.end()), true});
  ++per_host_[peer.host()];
  timed_ = true;
}

}  // namespace lockstep::net
