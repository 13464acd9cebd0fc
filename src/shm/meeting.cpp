#include "shm/meeting.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <sstream>
#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/host.hpp"
#include "shm/layout.hpp"
#include "shm/local_socket.hpp"

namespace lockstep::shm {
namespace {

constexpr net::Milliseconds kReach{5000};  // Processes of one host answer at once; strangers may not.

std::string random_word() {
  std::array<unsigned char, 16> bytes{};
  fill_random(bytes.data(), bytes.size());
  std::string word;
  for (const auto byte : bytes) {
    word += "0123456789abcdef"[byte >> 4];
    word += "0123456789abcdef"[byte & 15];
  }
  return word;
}

/// What a rank says of itself on the board.
struct Card {
  std::string trouble;  // Why it has no segment.
  std::string host;
  std::string socket;
  std::string secret;
  std::string cpus;

  std::string text() const { return host + '\n' + socket + '\n' + secret + '\n' + cpus + '\n' + trouble; }
  static Card read(const std::string& text) {
    Card card;
    std::istringstream lines(text);
    for (auto* field : {&card.host, &card.socket, &card.secret, &card.cpus, &card.trouble}) {
      std::getline(lines, *field);
    }
    return card;
  }
};

/// This process's own notes and sockets while the ranks look for each other.
class Introduction {
 public:
  Introduction(int rank, int size, Board& board, net::Deadline deadline)
      : rank_(rank), size_(size), board_(board), deadline_(deadline) {}

  Meeting run(std::size_t segment_size, std::size_t reserved);

 private:
  Card own_card(std::size_t segment_size, std::size_t reserved);
  std::vector<std::string> exchange_notes(const std::string& topic, const std::string& note);
  std::string first_stranger() const;
  void reach_all();
  void greet_lower_ranks();
  void answer_higher_ranks();
  void answer(net::FileDescriptor socket);
  void read_answers();
  Greeting greeting_for(int rank) const;
  void check(const Received& received, int socket, int rank) const;
  void accept_segment(Received received, int socket);
  std::string worst_of(const std::vector<std::string>& verdicts) const;
  bool a_cpu_each() const;

  int rank_;
  int size_;
  Board& board_;
  net::Deadline deadline_;
  net::Deadline reach_deadline_{};
  net::FileDescriptor listener_;
  std::shared_ptr<Segment> own_;
  std::vector<Card> cards_;
  std::vector<net::FileDescriptor> sockets_;  // To the lower ranks.
  std::vector<Peer> peers_;
};

Card Introduction::own_card(std::size_t segment_size, std::size_t reserved) {
  Card card{"", host_identity(), "lockstep-" + random_word(), random_word(), own_cpus()};
  try {
    own_ = Segment::create(segment_size);
    own_->reserve(0, reserved);
    listener_ = listen_locally(card.socket);
  } catch (const Error& error) {
    card.trouble = error.what();
  }
  return card;
}

std::vector<std::string> Introduction::exchange_notes(const std::string& topic, const std::string& note) {
  board_.post(topic + "/" + std::to_string(rank_), note);
  std::vector<std::string> notes;
  for (int r = 0; r < size_; ++r) {
    notes.push_back(r == rank_ ? note : board_.read(topic + "/" + std::to_string(r), deadline_));
  }
  return notes;
}

std::string Introduction::first_stranger() const {
  for (int r = 1; r < size_; ++r) {
    if (cards_[static_cast<std::size_t>(r)].host == cards_[0].host) continue;
    return "ranks 0 and " + std::to_string(r) +
           " are on different hosts, in different containers, or of "
           "different users";
  }
  return "";
}

Greeting Introduction::greeting_for(int rank) const {
  Greeting greeting{kMagic, rank_, getpid(), own_->size(), own_->token(), {}};
  std::memcpy(greeting.proof, cards_[static_cast<std::size_t>(rank)].secret.data(), sizeof(greeting.proof));
  return greeting;
}

void Introduction::greet_lower_ranks() {
  for (int r = 0; r < rank_; ++r) {
    sockets_.push_back(connect_locally(cards_[static_cast<std::size_t>(r)].socket, reach_deadline_));
    send_greeting(sockets_.back().get(), greeting_for(r), own_->descriptor());
  }
}

/// Strangers that find the socket are passed over; the ranks that are still missing decide how long.
void Introduction::answer_higher_ranks() {
  for (int missing = size_ - 1 - rank_; missing > 0;) {
    auto socket = accept_locally(listener_.get(), reach_deadline_);
    if (process_at(socket.get()).uid != geteuid()) continue;
    answer(std::move(socket));
    --missing;
  }
}

void Introduction::answer(net::FileDescriptor socket) {
  auto received = receive_greeting(socket.get(), reach_deadline_);
  const int rank = received.greeting.rank;
  if (rank <= rank_ || rank >= size_) throw CommunicationError("a stranger came to a rank's local socket");
  check(received, socket.get(), rank);
  accept_segment(std::move(received), socket.get());
  send_greeting(socket.get(), greeting_for(rank), own_->descriptor());
}

void Introduction::read_answers() {
  for (int r = 0; r < rank_; ++r) {
    const int socket = sockets_[static_cast<std::size_t>(r)].get();
    auto received = receive_greeting(socket, reach_deadline_);
    check(received, socket, r);
    accept_segment(std::move(received), socket);
  }
}

void Introduction::check(const Received& received, int socket, int rank) const {
  const auto& greeting = received.greeting;
  const std::string& secret = cards_[static_cast<std::size_t>(rank_)].secret;
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
}

/// No step waits for a rank that waits for this one: connecting and greeting need nobody's answer.
void Introduction::reach_all() {
  reach_deadline_ = net::earlier(deadline_, net::Clock::now() + kReach);
  greet_lower_ranks();
  answer_higher_ranks();
  read_answers();
}

std::string Introduction::worst_of(const std::vector<std::string>& verdicts) const {
  for (int r = 0; r < size_; ++r) {
    const auto& verdict = verdicts[static_cast<std::size_t>(r)];
    if (!verdict.empty()) return "rank " + std::to_string(r) + " cannot share memory: " + verdict;
  }
  return "";
}

bool Introduction::a_cpu_each() const {
  std::vector<std::string> masks;
  for (const auto& card : cards_) masks.push_back(card.cpus);
  return count_cpus(masks) >= size_;
}

Meeting Introduction::run(std::size_t segment_size, std::size_t reserved) {
  const Card own = own_card(segment_size, reserved);
  for (const auto& note : exchange_notes("card", own.text())) cards_.push_back(Card::read(note));
  if (auto stranger = first_stranger(); !stranger.empty()) return {{}, false, std::move(stranger)};
  std::vector<std::string> troubles;
  for (const auto& card : cards_) troubles.push_back(card.trouble);
  if (const auto worst = worst_of(troubles); !worst.empty()) throw CommunicationError(worst);
  peers_.resize(static_cast<std::size_t>(size_));
  auto& self = peers_[static_cast<std::size_t>(rank_)];
  self.segment = own_;
  self.pid = getpid();
  std::string verdict;
  try {
    reach_all();
  } catch (const Error& error) {
    verdict = error.what();
  }
  const std::string obstacle = worst_of(exchange_notes("reached", verdict));
  if (!obstacle.empty()) return {{}, false, obstacle};
  return {std::move(peers_), a_cpu_each(), ""};
}

}  // namespace

Meeting meet(int rank, int size, Board& board, net::Deadline deadline, std::size_t segment_size,
             std::size_t reserved) {
  return Introduction(rank, size, board, deadline).run(segment_size, reserved);
}

}  // namespace lockstep::shm
