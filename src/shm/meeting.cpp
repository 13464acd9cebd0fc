#include "shm/meeting.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/card.hpp"
#include "shm/host.hpp"
#include "shm/layout.hpp"
#include "shm/local_socket.hpp"

namespace lockstep::shm {
namespace {

constexpr net::Milliseconds kReach{5000};  // Processes of one host answer at once; strangers may not.

/// This process's own notes and sockets while the ranks look for each other.
class Introduction {
 public:
  Introduction(const Guest& self, Board& board) : self_(self), board_(board) {}

  Meeting run();

 private:
  void exchange_cards();
  std::vector<std::string> exchange_notes(const std::string& topic, const std::string& note,
                                          const std::vector<int>& readers);
  void make_segment();
  bool all_have_segments();
  void reach_all();
  void greet_lower_ranks();
  void answer_higher_ranks();
  void answer(net::FileDescriptor socket);
  void read_answers();
  Greeting greeting_for(int rank) const;
  void check(const Received& received, int socket, int rank) const;
  void accept_segment(Received received, int socket);
  template <class Step>
  void note_failure(const Step& step);
  Meeting conclude(const std::vector<Verdict>& verdicts);
  std::string obstacle(const std::vector<Verdict>& verdicts) const;
  void share_out_cpus(Meeting& meeting) const;
  const Card& card(int rank) const { return cards_[static_cast<std::size_t>(rank)]; }

  const Guest& self_;
  Board& board_;
  net::Deadline reach_deadline_{};
  net::FileDescriptor listener_;
  Layout layout_{};
  std::shared_ptr<Segment> own_;
  std::vector<Card> cards_;
  std::vector<int> everybody_;
  std::vector<int> neighbours_;  // Who might share memory with this rank, itself among them.
  bool anybody_has_neighbours_ = false;
  std::map<int, net::FileDescriptor> sockets_;  // To the lower ranks.
  std::vector<Peer> peers_;                     // A place for each rank of the group.
  Verdict verdict_;
};

/// The listener is there before anybody can read of it.
void Introduction::exchange_cards() {
  const Card own = Card::make(self_.host, self_.threads);
  note_failure([&] { listener_ = listen_locally(own.socket); });
  everybody_.resize(static_cast<std::size_t>(self_.size));
  std::iota(everybody_.begin(), everybody_.end(), 0);
  std::set<std::string> hosts;
  for (const auto& note : exchange_notes("card", own.text(), everybody_)) {
    cards_.push_back(Card::read(note));
    if (cards_.back().host == own.host) neighbours_.push_back(static_cast<int>(cards_.size()) - 1);
    if (!hosts.insert(cards_.back().host).second) anybody_has_neighbours_ = true;
  }
}

std::vector<std::string> Introduction::exchange_notes(const std::string& topic, const std::string& note,
                                                      const std::vector<int>& readers) {
  board_.post(topic + "/" + std::to_string(self_.rank), note);
  std::vector<std::string> notes;
  for (const int r : readers) {
    notes.push_back(r == self_.rank ? note : board_.read(topic + "/" + std::to_string(r), self_.deadline));
  }
  return notes;
}

/// What goes wrong between two ranks keeps neither from reaching the others.
template <class Step>
void Introduction::note_failure(const Step& step) {
  try {
    step();
  } catch (const Error& error) {
    if (verdict_.failure.empty()) verdict_.failure = error.what();
  }
}

void Introduction::make_segment() {
  layout_ = self_.layout(static_cast<int>(neighbours_.size()));
  try {
    own_ = Segment::create(layout_.size);
    own_->reserve(0, layout_.heap);
  } catch (const Error& error) {
    verdict_.trouble = error.what();
  }
}

/// Else there is no point in waiting for those who cannot come.
bool Introduction::all_have_segments() {
  const std::string own = verdict_.trouble.empty() ? "made" : "none";
  const auto notes = exchange_notes("segment", own, neighbours_);
  return std::all_of(notes.begin(), notes.end(), [](const std::string& note) { return note == "made"; });
}

Greeting Introduction::greeting_for(int rank) const {
  Greeting greeting{kMagic, self_.rank, getpid(), own_->size(), own_->token(), {}};
  std::memcpy(greeting.proof, card(rank).secret.data(), sizeof(greeting.proof));
  return greeting;
}

void Introduction::greet_lower_ranks() {
  for (const int r : neighbours_) {
    if (r >= self_.rank) break;
    note_failure([&] {
      auto socket = connect_locally(card(r).socket, reach_deadline_);
      send_greeting(socket.get(), greeting_for(r), own_->descriptor());
      sockets_[r] = std::move(socket);
    });
  }
}

/// Strangers that find the socket are passed over; the ranks that are still missing decide how long.
void Introduction::answer_higher_ranks() {
  const auto higher = std::upper_bound(neighbours_.begin(), neighbours_.end(), self_.rank);
  for (auto missing = neighbours_.end() - higher; missing > 0;) {
    auto socket = accept_locally(listener_.get(), reach_deadline_);
    if (process_at(socket.get()).uid != geteuid()) continue;
    answer(std::move(socket));
    --missing;
  }
}

void Introduction::answer(net::FileDescriptor socket) {
  auto received = receive_greeting(socket.get(), reach_deadline_);
  const int rank = received.greeting.rank;
  if (rank <= self_.rank || rank >= self_.size)
    throw CommunicationError("a stranger came to a rank's local socket");
  check(received, socket.get(), rank);
  accept_segment(std::move(received), socket.get());
  send_greeting(socket.get(), greeting_for(rank), own_->descriptor());
}

void Introduction::read_answers() {
  for (const auto& [rank, socket] : sockets_) {
    note_failure([&, r = rank, descriptor = socket.get()] {
      auto received = receive_greeting(descriptor, reach_deadline_);
      check(received, descriptor, r);
      accept_segment(std::move(received), descriptor);
    });
  }
}

void Introduction::check(const Received& received, int socket, int rank) const {
  const auto& greeting = received.greeting;
  const std::string& secret = card(self_.rank).secret;
  const bool known = greeting.magic == kMagic && greeting.rank == rank &&
                     std::memcmp(greeting.proof, secret.data(), sizeof(greeting.proof)) == 0;
  if (!known || process_at(socket).uid != geteuid() || greeting.size != own_->size()) {
    throw CommunicationError(
        "a stranger, or another version of this program, is at the local socket of rank " +
        std::to_string(rank));
  }
}

/// -1 where there is no such process in this pid namespace, or the system has no pidfds.
net::FileDescriptor lifeline_of(pid_t pid) {
  if (pid <= 0 || pid == getpid()) return net::FileDescriptor();
  return net::FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

void Introduction::accept_segment(Received received, int socket) {
  const PeerProcess process = process_at(socket);
  auto& peer = peers_[static_cast<std::size_t>(received.greeting.rank)];
  peer.pid = process.pid > 0 ? process.pid : received.greeting.pid;
  peer.lifeline = lifeline_of(process.pid);
  if (process.pid == getpid()) peer.segment = Segment::of_this_process(received.greeting.token);
  if (!peer.segment) peer.segment = Segment::open(std::move(received.descriptor), received.greeting.size);
  verdict_.reached[static_cast<std::size_t>(received.greeting.rank)] = '1';
}

/// No step waits for a rank that waits for this one: connecting and greeting need nobody's answer.
void Introduction::reach_all() {
  auto& self = peers_[static_cast<std::size_t>(self_.rank)];
  self.segment = own_;
  self.pid = getpid();
  reach_deadline_ = net::earlier(self_.deadline, net::Clock::now() + kReach);
  greet_lower_ranks();
  note_failure([&] { answer_higher_ranks(); });
  read_answers();
}

void Introduction::share_out_cpus(Meeting& meeting) const {
  const std::vector<int>& ranks = meeting.hosts.mine();
  std::vector<Processors> processors;
  for (const int rank : ranks) processors.push_back(card(rank).processors);
  meeting.a_cpu_each = count_cpus(processors) >= static_cast<int>(ranks.size());
  const auto cpus = communication_cpus(processors);
  const auto own = std::find(ranks.begin(), ranks.end(), self_.rank) - ranks.begin();
  if (!cpus.empty()) meeting.communication_cpu = cpus[static_cast<std::size_t>(own)];
}

/// The first reason, in the order of ranks.
std::string Introduction::obstacle(const std::vector<Verdict>& verdicts) const {
  for (const int r : everybody_) {
    if (card(r).host == card(0).host) continue;
    return "ranks 0 and " + std::to_string(r) +
           " are on different hosts, in different containers, or of "
           "different users";
  }
  for (const int r : everybody_) {
    const auto& failure = verdicts[static_cast<std::size_t>(r)].failure;
    if (!failure.empty()) return "rank " + std::to_string(r) + " cannot share memory: " + failure;
  }
  return "";
}

Meeting Introduction::conclude(const std::vector<Verdict>& verdicts) {
  std::vector<std::vector<bool>> reached;
  for (const auto& verdict : verdicts) {
    auto& row = reached.emplace_back();
    for (const char digit : verdict.reached) row.push_back(digit == '1');
    row.resize(cards_.size());
  }
  Meeting meeting;
  meeting.layout = layout_;
  meeting.hosts = hosts_of(reached, self_.rank);
  for (const auto& card : cards_) meeting.host_names.push_back(card.host_name);
  if (meeting.hosts.count() > 1) meeting.obstacle = obstacle(verdicts);
  if (!meeting.hosts.anybody_shares() && self_.size > 1) return meeting;
  for (const int rank : meeting.hosts.mine()) {
    meeting.peers.push_back(std::move(peers_[static_cast<std::size_t>(rank)]));
  }
  share_out_cpus(meeting);
  return meeting;
}

Meeting Introduction::run() {
  peers_.resize(static_cast<std::size_t>(self_.size));
  verdict_.reached.assign(static_cast<std::size_t>(self_.size), '0');
  verdict_.reached[static_cast<std::size_t>(self_.rank)] = '1';
  exchange_cards();
  std::vector<Verdict> verdicts(cards_.size());
  if (!anybody_has_neighbours_ && self_.size > 1) return conclude(verdicts);
  make_segment();
  if (all_have_segments()) reach_all();
  verdicts.clear();
  for (const auto& note : exchange_notes("verdict", verdict_.text(), everybody_)) {
    verdicts.push_back(Verdict::read(note));
    if (verdicts.back().trouble.empty()) continue;
    throw CommunicationError("rank " + std::to_string(verdicts.size() - 1) +
                             " cannot share memory: " + verdicts.back().trouble);
  }
  return conclude(verdicts);
}

}  // namespace

Meeting meet(const Guest& self, Board& board) { return Introduction(self, board).run(); }

}  // namespace lockstep::shm
