#include "shm/peer_connections.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::shm {
namespace {

constexpr net::Milliseconds kReach{5000};  // Ranks of one host answer quickly; other processes may not.

constexpr net::Milliseconds kLook{50};

std::size_t fair_share_of_memory(int ranks) {
  const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  return pages / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// The notes and sockets of this rank while the ranks of a group connect. They post their addresses, connect
/// to the ranks of their host, exchange segments, and report which ranks they have reached.
class PeerConnector {
 public:
  PeerConnector(const GroupOptions& options, BootstrapStore& store)
      : options_(options),
        store_(store),
        rank_(options.members.rank),
        deadline_(net::Clock::now() + options.join_timeout),
        peers_(options.members.names.size()) {
    report_.reached.assign(peers_.size(), '0');
    report_.reached[static_cast<std::size_t>(rank_)] = '1';
    everybody_.resize(peers_.size());
    std::iota(everybody_.begin(), everybody_.end(), 0);
  }

  PeerConnections run() {
    exchange_addresses();
    std::vector<ConnectReport> reports(addresses_.size());
    if (!anybody_has_neighbours_ && peers_.size() > 1) return conclude(reports);
    make_segment();
    if (all_have_segments()) reach_all();
    reports.clear();
    for (const auto& note : exchange_notes("report", report_.text(), everybody_)) {
      reports.push_back(ConnectReport::read(note));
      if (reports.back().trouble.empty()) continue;
      throw CommunicationError(
          fmt::format("rank {} cannot share memory: {}", reports.size() - 1, reports.back().trouble));
    }
    return conclude(reports);
  }

 private:
  const PeerAddress& address_of(int rank) const { return addresses_[static_cast<std::size_t>(rank)]; }

  std::vector<std::string> exchange_notes(const std::string& topic, const std::string& note,
                                          const std::vector<int>& readers) {
    const auto key = [&](int rank) { return fmt::format("{}/{}", topic, rank); };
    store_.post(key(rank_), note);
    std::vector<std::string> notes;
    for (const int r : readers) notes.push_back(r == rank_ ? note : store_.read(key(r), deadline_));
    return notes;
  }

  /// A failure between two ranks does not keep them from reaching the others.
  template <class Step>
  void note_failure(const Step& step) {
    try {
      step();
    } catch (const Error& error) {
      if (report_.failure.empty()) report_.failure = error.what();
    }
  }

  /// Creates the listener before posting its address.
  void exchange_addresses() {
    const PeerAddress own = PeerAddress::make(options_.host, options_.threads);
    note_failure([&] { listener_ = listen_locally(own.socket); });
    std::set<std::string> hosts;
    for (const auto& note : exchange_notes("address", own.text(), everybody_)) {
      addresses_.push_back(PeerAddress::read(note));
      if (addresses_.back().host == own.host) neighbours_.push_back(static_cast<int>(addresses_.size()) - 1);
      if (!hosts.insert(addresses_.back().host).second) anybody_has_neighbours_ = true;
    }
  }

  void make_segment() {
    const int ranks = static_cast<int>(neighbours_.size());
    const auto heap = options_.heap_bytes == 0 ? fair_share_of_memory(ranks) : options_.heap_bytes;
    layout_ = Layout::of(ranks, options_.staging_bytes, heap);
    try {
      own_ = Segment::create(layout_.size);
      own_->reserve(0, layout_.heap);
    } catch (const Error& error) {
      report_.trouble = error.what();
    }
  }

  /// Otherwise connecting is pointless.
  bool all_have_segments() {
    const std::string own = report_.trouble.empty() ? "made" : "none";
    const auto notes = exchange_notes("segment", own, neighbours_);
    return std::all_of(notes.begin(), notes.end(), [](const std::string& note) { return note == "made"; });
  }

  /// No step waits for a rank that waits for this one: connecting and greeting need no answer.
  void reach_all() {
    auto& self = peers_[static_cast<std::size_t>(rank_)];
    self.segment = own_;
    self.pid = getpid();
    reach_deadline_ = std::min(deadline_, net::Clock::now() + kReach);
    greet_lower_ranks();
    note_failure([&] { answer_higher_ranks(); });
    for (const auto& [rank, socket] : sockets_)
      note_failure([&, from = rank, descriptor = socket.get()] { receive_segment(descriptor, from); });
    for (auto& [rank, socket] : sockets_) keep_link(rank, std::move(socket));
  }

  /// Ranks in other pid namespaces (containers) cannot be asked for: at least one of two does not see the
  /// other.
  void keep_link(int rank, net::FileDescriptor socket) {
    if (address_of(rank).pid_namespace == address_of(rank_).pid_namespace) return;
    peers_[static_cast<std::size_t>(rank)].link = std::move(socket);
  }

  void send_segment(int socket, int rank) const {
    Greeting greeting{kMagic, rank_, getpid(), own_->size(), own_->token(), {}};
    std::memcpy(greeting.proof, address_of(rank).secret.data(), sizeof(greeting.proof));
    send_greeting(socket, greeting, own_->descriptor());
  }

  void greet_lower_ranks() {
    for (const int r : neighbours_) {
      if (r >= rank_) break;
      note_failure([&] {
        auto socket = connect_locally(address_of(r).socket, reach_deadline_);
        send_segment(socket.get(), r);
        sockets_[r] = std::move(socket);
      });
    }
  }

  /// Any process of this user may connect and send something else, or nothing; this does not delay any rank.
  /// Ends when all higher ranks of this host were answered.
  void answer_higher_ranks() {
    std::set<int> missing(std::upper_bound(neighbours_.begin(), neighbours_.end(), rank_), neighbours_.end());
    std::vector<net::FileDescriptor> sockets;  // Not greeted yet.
    while (!missing.empty()) {
      store_.check_wait();
      const auto look = std::min(reach_deadline_, net::Clock::now() + kLook);
      const auto ready = wait_for_any(listener_.get(), sockets, look);
      if (ready.empty() && look < reach_deadline_) continue;
      if (ready.empty()) {
        throw TimeoutError(fmt::format("rank {} did not connect to its local socket within {} ms",
                                       fmt::join(missing, ", "), kReach.count()));
      }
      for (const std::size_t number : ready) {
        if (number == sockets.size()) continue;
        note_failure([&] {
          const int rank = receive_segment(sockets[number].get(), std::nullopt);
          send_segment(sockets[number].get(), rank);
          missing.erase(rank);
          keep_link(rank, std::move(sockets[number]));
        });
        sockets[number].reset();
      }
      std::erase_if(sockets, [](const net::FileDescriptor& socket) { return !socket; });
      if (auto socket = accept_locally(listener_.get())) sockets.push_back(std::move(socket));
    }
  }

  /// From `expected`, or from any higher rank. Returns the rank that owns the segment.
  int receive_segment(int socket, std::optional<int> expected) {
    auto [greeting, descriptor] = receive_greeting(socket, reach_deadline_);
    const PeerProcess process = process_at(socket);
    const std::string& secret = address_of(rank_).secret;
    const int rank = greeting.rank;
    const bool possible = expected ? rank == *expected : rank > rank_ && rank < options_.members.size();
    if (!possible || greeting.magic != kMagic || process.uid != geteuid() || greeting.size != own_->size() ||
        std::memcmp(greeting.proof, secret.data(), sizeof(greeting.proof)) != 0) {
      throw CommunicationError(
          expected ? fmt::format("another program, or another version of this one, is at the local socket of "
                                 "rank {}",
                                 *expected)
                   : "another program, or another version of this one, connected to a rank's local socket");
    }
    auto& peer = peers_[static_cast<std::size_t>(rank)];
    peer.pid = process.pid > 0 ? process.pid : greeting.pid;
    if (process.pid > 0 && process.pid != getpid()) peer.process = ProcessHandle(process.pid);
    if (process.pid == getpid()) peer.segment = Segment::of_this_process(greeting.token);
    if (!peer.segment) peer.segment = Segment::open(std::move(descriptor), greeting.size);
    report_.reached[static_cast<std::size_t>(rank)] = '1';
    return rank;
  }

  void share_out_cpus(PeerConnections& connections) const {
    const std::vector<int>& ranks = connections.hosts.mine();
    std::vector<Processors> processors;
    for (const int rank : ranks) processors.push_back(address_of(rank).processors);
    connections.has_cpu_per_rank = count_cpus(processors) >= static_cast<int>(ranks.size());
    const auto cpus = communication_cpus(processors);
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    if (!cpus.empty()) connections.communication_cpu = cpus[static_cast<std::size_t>(own)];
  }

  /// The first reason, in rank order.
  std::string obstacle(const std::vector<ConnectReport>& reports) const {
    for (const int r : everybody_) {
      if (address_of(r).host == address_of(0).host) continue;
      return fmt::format(
          "ranks 0 and {} are on different hosts, in different containers, or of different users", r);
    }
    for (const int r : everybody_) {
      const auto& failure = reports[static_cast<std::size_t>(r)].failure;
      if (!failure.empty()) return fmt::format("rank {} cannot share memory: {}", r, failure);
    }
    return "";
  }

  PeerConnections conclude(const std::vector<ConnectReport>& reports) {
    std::vector<std::vector<bool>> reached;
    for (const auto& report : reports) {
      auto& row = reached.emplace_back();
      for (const char digit : report.reached) row.push_back(digit == '1');
      row.resize(addresses_.size());
    }
    PeerConnections connections;
    connections.layout = layout_;
    connections.hosts = host_topology_of(reached, rank_);
    for (const auto& address : addresses_) connections.host_names.push_back(address.host_name);
    if (connections.hosts.count() > 1) connections.obstacle = obstacle(reports);
    if (!connections.hosts.anybody_shares() && peers_.size() > 1) return connections;
    for (const int rank : connections.hosts.mine())
      connections.peers.push_back(std::move(peers_[static_cast<std::size_t>(rank)]));
    share_out_cpus(connections);
    return connections;
  }

  const GroupOptions& options_;
  BootstrapStore& store_;
  int rank_;
  net::Deadline deadline_;
  net::Deadline reach_deadline_{};
  net::FileDescriptor listener_;
  Layout layout_{};
  std::shared_ptr<Segment> own_;
  std::vector<PeerAddress> addresses_;
  std::vector<int> everybody_;
  std::vector<int> neighbours_;  // Ranks that may share memory with this one, including itself.
  bool anybody_has_neighbours_ = false;
  std::map<int, net::FileDescriptor> sockets_;  // To the lower ranks.
  std::vector<Peer> peers_;                     // One per rank of the group.
  ConnectReport report_;
};

}  // namespace

bool Peer::has_ended() const noexcept {
  if (process.has_ended()) return true;
  if (!link) return false;
  // Nothing is sent after the greeting: it becomes readable at its end only.
  pollfd entry{link.get(), POLLIN | POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

PeerConnections connect_peers(const GroupOptions& options, BootstrapStore& store) {
  return PeerConnector(options, store).run();
}

}  // namespace lockstep::shm
