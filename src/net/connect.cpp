#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <deque>

#include "lockstep/core/error.hpp"
#include "net/socket.hpp"
#include "net/socket_options.hpp"

namespace lockstep::net {
namespace {

/// One address on its way to being connected, again and again.
class Attempt {
 public:
  explicit Attempt(const Address& address) : address_(address) {}

  /// Begins when none is under way and the pause since the last one is over. True: connected at once.
  bool begin(Clock::time_point now) {
    if (socket_ || now < not_before_) return false;
    socket_ = new_socket(address_.family());
    if (!socket_) return fail(errno, now);
    set_stream_options(socket_.get());
    if (connect(socket_.get(), address_.data(), address_.size()) == 0) return settled(now);
    return errno == EINPROGRESS ? false : fail(errno, now);
  }

  /// After the poll said that something came of it. True: connected.
  bool settled(Clock::time_point now) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    // A port of this host's own range may connect to itself; whoever should listen there could never do so.
    if (error == 0 && local_address(socket_.get()) == remote_address(socket_.get())) error = ECONNREFUSED;
    return error == 0 || fail(error, now);
  }

  int descriptor() const { return socket_.get(); }
  FileDescriptor take() { return std::move(socket_); }
  Clock::time_point not_before() const { return not_before_; }

  std::string outcome() const {
    const int error = socket_ || last_error_ == 0 ? ETIMEDOUT : last_error_;
    if (error == ETIMEDOUT) return address_.text() + ": no answer; a firewall may be in between";
    if (error == ECONNREFUSED) return address_.text() + ": refused; nobody listens there";
    return address_.text() + ": " + std::strerror(error);
  }

 private:
  bool fail(int error, Clock::time_point now) {
    constexpr Milliseconds kFirstPause{5}, kLongestPause{200};
    socket_.reset();
    last_error_ = error;
    pause_ = pause_ == Milliseconds(0) ? kFirstPause : std::min(2 * pause_, kLongestPause);
    not_before_ = now + pause_;
    return false;
  }

  Address address_;
  FileDescriptor socket_;
  int last_error_ = 0;
  Milliseconds pause_{0};
  Clock::time_point not_before_{};
};

class ConnectRace {
 public:
  ConnectRace(const std::vector<Address>& addresses, Deadline deadline)
      : attempts_(addresses.begin(), addresses.end()), deadline_(deadline) {}

  FileDescriptor run() {
    for (;;) {
      for (auto& attempt : attempts_) {
        if (attempt.begin(Clock::now())) return attempt.take();
      }
      if (Attempt* winner = await()) return winner->take();
      if (Clock::now() >= deadline_) fail();
    }
  }

 private:
  /// Until something is settled, or the first pause is over.
  Attempt* await() {
    std::vector<pollfd> entries;
    Deadline until = deadline_;
    for (const auto& attempt : attempts_) {
      entries.push_back({attempt.descriptor(), POLLOUT, 0});
      if (attempt.descriptor() < 0) until = earlier(until, attempt.not_before());
    }
    poll(entries.data(), entries.size(), static_cast<int>(left_until(until).count()));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents != 0 && attempts_[i].settled(Clock::now())) return &attempts_[i];
    }
    return nullptr;
  }

  [[noreturn]] void fail() const {
    std::string text = "cannot connect to ";
    for (const auto& attempt : attempts_)
      text += (&attempt == &attempts_.front() ? "" : "; ") + attempt.outcome();
    throw TimeoutError(text + ".");
  }

  std::deque<Attempt> attempts_;
  Deadline deadline_;
};

}  // namespace

FileDescriptor connect_to(const std::vector<Address>& addresses, Deadline deadline) {
  if (addresses.empty()) throw UsageError("cannot connect: no address was given.");
  return ConnectRace(addresses, deadline).run();
}

}  // namespace lockstep::net
