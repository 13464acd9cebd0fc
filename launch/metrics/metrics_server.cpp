#include "metrics/metrics_server.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "core/runtime/signal_free_thread.hpp"
#include "net/deadline.hpp"
#include "net/socket.hpp"

namespace lockstep::launch {
namespace {

/// How long an answered client may take to close its end. Closing first, with bytes unread, could destroy the
/// answer on its way.
constexpr net::Milliseconds kClosingTime{1000};
/// How long to leave the listener alone after the system refused a connection: out of descriptors.
constexpr net::Milliseconds kPauseTime{1000};

std::string answer(std::string_view status, std::string_view content, bool is_head,
                   std::string_view more = "") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "{}Connection: close\r\n\r\n{}",
      status, content.size(), more, is_head ? "" : content);
}

/// The answer to a request whose headers are complete.
std::string answer_to(std::string_view request, const std::function<std::string()>& page) {
  const std::string_view line = request.substr(0, request.find_first_of("\r\n"));
  const auto after_method = line.find(' ');
  const auto after_path = line.rfind(' ');
  if (after_method == std::string_view::npos || after_path <= after_method ||
      !line.substr(after_path).starts_with(" HTTP/1."))
    return answer("400 Bad Request", "expected: GET /metrics HTTP/1.1\n", false);
  const std::string_view method = line.substr(0, after_method);
  std::string_view path = line.substr(after_method + 1, after_path - after_method - 1);
  path = path.substr(0, path.find('?'));
  const bool is_head = method == "HEAD";
  if (method != "GET" && !is_head)
    return answer("405 Method Not Allowed", "expected GET or HEAD\n", false, "Allow: GET, HEAD\r\n");
  if (path != "/metrics") return answer("404 Not Found", "the metrics are at /metrics\n", is_head);
  return answer("200 OK", page(), is_head);
}

bool is_complete(std::string_view request) {
  return request.find("\r\n\r\n") != std::string_view::npos || request.find("\n\n") != std::string_view::npos;
}

}  // namespace

/// One client: it sends its request, gets the answer, and closes.
class MetricsServer::Connection {
 public:
  Connection(net::FileDescriptor socket, net::Deadline deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}

  pollfd entry() const {
    return {socket_.get(), static_cast<short>(stage_ == Stage::answering ? POLLOUT : POLLIN), 0};
  }
  net::Deadline deadline() const { return deadline_; }

  /// To be called when the socket is ready. False: the connection is over.
  bool work(const std::function<std::string()>& page, std::size_t most_bytes) {
    if (stage_ == Stage::reading && !read(page, most_bytes)) return false;
    if (stage_ == Stage::answering && !write()) return false;
    return stage_ != Stage::closing || drain();
  }

 private:
  enum class Stage { reading, answering, closing };

  bool read(const std::function<std::string()>& page, std::size_t most_bytes) {
    char piece[1024];
    const auto got = ::recv(socket_.get(), piece, sizeof piece, 0);
    if (got < 0) return net::would_block();
    if (got == 0) return false;
    request_.append(piece, static_cast<std::size_t>(got));
    if (is_complete(request_)) {
      answer_ = answer_to(request_, page);
    } else if (request_.size() > most_bytes) {
      answer_ = answer("431 Request Header Fields Too Large", "the request is too long\n", false);
    } else {
      return true;
    }
    stage_ = Stage::answering;
    return true;
  }

  bool write() {
    const auto sent =
        ::send(socket_.get(), answer_.data() + sent_, answer_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return net::would_block();
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ < answer_.size()) return true;
    ::shutdown(socket_.get(), SHUT_WR);
    stage_ = Stage::closing;
    deadline_ = std::min(deadline_, net::Clock::now() + kClosingTime);
    return true;
  }

  /// What comes after the request is of no interest.
  bool drain() const {
    char piece[4096];
    const auto got = ::recv(socket_.get(), piece, sizeof piece, MSG_DONTWAIT);
    return got > 0 || (got < 0 && net::would_block());
  }

  net::FileDescriptor socket_;
  net::Deadline deadline_;
  Stage stage_ = Stage::reading;
  std::string request_;
  std::string answer_;
  std::size_t sent_ = 0;
};

/// The connections, oldest first, for the server's thread.
class MetricsServer::Connections {
 public:
  Connections(int listener, int stop, std::function<std::string()> page, const MetricsServerLimits& limits)
      : listener_(listener), stop_(stop), page_(std::move(page)), limits_(limits) {}

  void serve() {
    while (await()) {
      work();
      if (entries_[1].revents != 0) accept();
      const auto now = net::Clock::now();
      std::erase_if(open_, [now](const Connection& each) { return now >= each.deadline(); });
    }
  }

 private:
  /// False: the server ends.
  bool await() {
    const auto now = net::Clock::now();
    auto next = paused_until_ > now ? paused_until_ : net::Deadline::max();
    entries_ = {{stop_, POLLIN, 0}, {paused_until_ > now ? -1 : listener_, POLLIN, 0}};
    for (const auto& each : open_) {
      entries_.push_back(each.entry());
      next = std::min(next, each.deadline());
    }
    const int time = next == net::Deadline::max() ? -1 : static_cast<int>(net::left_until(next).count());
    if (::poll(entries_.data(), entries_.size(), time) < 0) {
      for (auto& entry : entries_) entry.revents = 0;
    }
    return entries_[0].revents == 0;
  }

  void work() {
    std::size_t at = 2;
    std::erase_if(open_, [&](Connection& each) {
      return entries_[at++].revents != 0 && !each.work(page_, limits_.most_bytes);
    });
  }

  void accept() {
    auto accepted = net::accept_from(listener_);
    if (!accepted) {
      if (!net::would_block() && errno != ECONNABORTED) paused_until_ = net::Clock::now() + kPauseTime;
      return;
    }
    if (open_.size() >= limits_.most_connections) open_.pop_front();
    open_.emplace_back(std::move(accepted->socket), net::Clock::now() + limits_.request_time);
  }

  int listener_, stop_;
  std::function<std::string()> page_;
  MetricsServerLimits limits_;
  std::deque<Connection> open_;
  std::vector<pollfd> entries_;
  net::Deadline paused_until_ = net::Deadline::min();
};

MetricsServer::MetricsServer(const net::Address& address, std::function<std::string()> page,
                             const MetricsServerLimits& limits)
    : listener_(net::listen_at(address)),
      stop_(net::open_event()),
      address_(net::local_address(listener_.get())),
      thread_(signal_free_thread([listener = listener_.get(), stop = stop_.get(), page = std::move(page),
                                  limits] { Connections(listener, stop, page, limits).serve(); })) {}

MetricsServer::~MetricsServer() {
  net::raise_event(stop_);
  thread_.join();
}

}  // namespace lockstep::launch
