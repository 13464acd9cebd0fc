#include "logs/log_forwarder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

using file_system::uninterrupted;

[[noreturn]] void fail_to_forward(const char* what) {
  throw formatted<Error>("cannot forward the output of ranks: {}: {}.", what, std::strerror(errno));
}

net::FileDescriptor opened(const std::string& path) {
  return net::FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
}

bool holds_any(std::string_view line, const std::vector<std::string>& texts) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return line.find(text) != std::string_view::npos; });
}

}  // namespace

net::FileDescriptor open_log(const std::string& path) {
  net::FileDescriptor file = opened(path);
  if (!file) throw formatted<Error>("cannot write the log file '{}': {}.", path, std::strerror(errno));
  return file;
}

LogFile::LogFile(std::string path, std::int64_t most_bytes)
    : path_(std::move(path)), most_bytes_(most_bytes), file_(open_log(path_)) {}

void LogFile::begin_anew() {
  if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return;
  // Where no new one can be made, the old one goes on.
  if (net::FileDescriptor next = opened(path_)) file_ = std::move(next);
  bytes_ = 0;
}

bool LogFile::write(std::string_view text) {
  if (most_bytes_ > 0 && bytes_ > 0 && bytes_ + static_cast<std::int64_t>(text.size()) > most_bytes_) {
    begin_anew();
  }
  while (!text.empty() && file_) {
    const ssize_t count = uninterrupted([&] { return ::write(file_.get(), text.data(), text.size()); });
    if (count < 0) {
      file_.reset();
      return false;
    }
    bytes_ += count;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string line_prefix(const std::string& pattern, const std::string& role, int rank, int local_rank) {
  if (pattern.empty()) return fmt::format("[{}{}]:", role, local_rank);
  return substituted(
      pattern,
      {{"role_name", role}, {"rank", std::to_string(rank)}, {"local_rank", std::to_string(local_rank)}});
}

net::FileDescriptor LogForwarder::open(ForwardedStream to) {
  if (!poll_) poll_ = net::FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!poll_) fail_to_forward("epoll_create1");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_to_forward("pipe2");
  Stream stream{net::FileDescriptor(ends[0]), std::move(to)};
  net::FileDescriptor sink(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  if (stream.to.number == STDERR_FILENO) tails_.erase(stream.to.local_rank);
  streams_.push_back(std::move(stream));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &streams_.back();
  if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, ends[0], &event) != 0) fail_to_forward("epoll_ctl");
  return sink;
}

bool LogForwarder::pass_on(Stream& stream) {
  std::array<char, 16 * 1024> buffer;
  const ssize_t count =
      uninterrupted([&] { return read(stream.source.get(), buffer.data(), buffer.size()); });
  if (count < 0) return false;
  if (count == 0) {
    end_stream(stream);
    // Closing takes it out of the poll.
    stream.source.reset();
    return false;
  }
  take_text(stream, {buffer.data(), static_cast<std::size_t>(count)});
  return true;
}

void LogForwarder::take_text(Stream& stream, std::string_view text) {
  if (stream.to.copy) write(*stream.to.copy, text);
  if (stream.to.number == STDERR_FILENO) tails_[stream.to.local_rank].add(text);
  std::string shown;
  stream.splitter.add(text, [&](std::string_view line) { take_line(stream, line, shown); });
  console_.stream(stream.to.number).write(std::move(shown));
}

void LogForwarder::end_stream(Stream& stream) {
  std::string shown;
  stream.splitter.finish([&](std::string_view line) { take_line(stream, line, shown); });
  console_.stream(stream.to.number).write(std::move(shown));
}

void LogForwarder::take_line(Stream& stream, std::string_view line, std::string& shown) {
  if (stream.to.shown) shown.append(stream.to.painted_prefix).append(line) += '\n';
  if (!stream.to.filtered || !holds_any(line, stream.to.filters)) return;
  write(*stream.to.filtered, fmt::format("{}{}\n", stream.to.prefix, line));
}

void LogForwarder::write(LogFile& file, std::string_view text) {
  if (file.write(text)) return;
  console_.say("the log file {} ends here, it cannot be written: {}", file.path(), std::strerror(errno));
}

void LogForwarder::pump() {
  if (!poll_) return;
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i)
    pass_on(*static_cast<Stream*>(events[static_cast<std::size_t>(i)].data.ptr));
}

void LogForwarder::flush() {
  for (auto& stream : streams_) {
    // Bounded: somebody who writes without end does not hold the launcher.
    for (int i = 0; i < 1000 && stream.source && pass_on(stream); ++i) continue;
  }
}

void LogForwarder::finish() {
  flush();
  for (auto& stream : streams_) end_stream(stream);
  streams_.clear();
}

std::string LogForwarder::last_lines(int local_rank, int count) const {
  const auto found = tails_.find(local_rank);
  return found == tails_.end() ? "" : found->second.last_lines(count);
}

}  // namespace lockstep::launch
