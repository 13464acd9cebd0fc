#include "output/output_relay.hpp"

#include <fcntl.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// A "line" of more than this is passed on in pieces; it is a progress bar or binary data.
constexpr std::size_t kLongestLine = 64 * 1024;

/// Writes all of it; a full disk or a closed console is no reason to end a job, so errors end the writing
/// only.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
}

[[noreturn]] void fail(const char* what) {
  throw Error(std::string("cannot relay the output of ranks: ") + what + ": " + std::strerror(errno) + ".");
}

}  // namespace

net::FileDescriptor OutputRelay::open(int console, std::string prefix, net::FileDescriptor copy) {
  if (!poll_) poll_ = net::FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!poll_) fail("epoll_create1");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
  Stream stream{net::FileDescriptor(ends[0]), std::move(copy), console, std::move(prefix), ""};
  net::FileDescriptor sink(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  streams_.push_back(std::move(stream));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &streams_.back();
  if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, ends[0], &event) != 0) fail("epoll_ctl");
  return sink;
}

bool OutputRelay::pass_on(Stream& stream) {
  std::array<char, 16 * 1024> buffer;
  const ssize_t count = read(stream.source.get(), buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return true;
  if (count < 0) return false;
  if (count == 0) {
    write_lines(stream, true);
    // Closing takes it out of the poll.
    stream.source.reset();
    return false;
  }
  const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
  if (stream.copy) write_all(stream.copy.get(), text);
  stream.partial += text;
  write_lines(stream, false);
  return true;
}

void OutputRelay::write_lines(Stream& stream, bool all) {
  if ((all && !stream.partial.empty()) || stream.partial.size() > kLongestLine) {
    if (stream.partial.back() != '\n') stream.partial += '\n';
  }
  std::string lines;
  std::size_t start = 0;
  for (auto end = stream.partial.find('\n'); end != std::string::npos;
       end = stream.partial.find('\n', start)) {
    lines += stream.prefix + stream.partial.substr(start, end + 1 - start);
    start = end + 1;
  }
  stream.partial.erase(0, start);
  write_all(stream.console, lines);
}

void OutputRelay::pump() {
  if (!poll_) return;
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i)
    pass_on(*static_cast<Stream*>(events[static_cast<std::size_t>(i)].data.ptr));
}

void OutputRelay::flush() {
  for (auto& stream : streams_) {
    // Bounded: somebody who writes without end does not hold the launcher.
    for (int i = 0; i < 1000 && stream.source && pass_on(stream); ++i) continue;
  }
}

void OutputRelay::finish() {
  flush();
  for (auto& stream : streams_) write_lines(stream, true);
  streams_.clear();
}

}  // namespace lockstep::launch
