#include "logs/log_forwarder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/file_system.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
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
  return std::ranges::any_of(
      texts, [&](const std::string& text) { return line.find(text) != std::string_view::npos; });
}

std::string_view end_of(std::string_view text) {
  return text.substr(text.size() - std::min(text.size(), Tail::kMost));
}

std::string last_lines_of(std::string_view text, int count) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  std::size_t start = text.size();
  for (int line = 0; line < count && start > 0; ++line) {
    const auto end = text.rfind('\n', start - 1);
    if (end == std::string_view::npos) return std::string(text);
    start = end;
  }
  return std::string(text.substr(std::min(start + 1, text.size())));
}

}  // namespace

void LineSplitter::add(std::string_view text, const Take& take) {
  partial_ += text;
  std::size_t start = 0;
  for (;;) {
    const auto end = partial_.find_first_of("\r\n", start);
    if (end == std::string::npos) break;
    const bool returned = partial_[end] == '\r';
    // It may be the first half of "\r\n".
    if (returned && end + 1 == partial_.size()) break;
    const bool both = returned && partial_[end + 1] == '\n';
    // A progress bar starts with a carriage return; no empty line for it.
    if (end > start || !returned || both) take(std::string_view(partial_).substr(start, end - start));
    start = end + (both ? 2 : 1);
  }
  partial_.erase(0, start);
  if (partial_.size() > kLongest) finish(take);
}

void LineSplitter::finish(const Take& take) {
  if (partial_.ends_with('\r')) partial_.pop_back();
  if (!partial_.empty()) take(partial_);
  partial_.clear();
}

void Tail::add(std::string_view text) {
  text_ += end_of(text);
  if (text_.size() > 2 * kMost) text_.erase(0, text_.size() - kMost);
}

std::string Tail::last_lines(int count) const { return last_lines_of(end_of(text_), count); }

std::string last_lines(const std::string& path, int count) {
  return last_lines_of(read_end(path, Tail::kMost).value_or(""), count);
}

net::FileDescriptor open_log(const std::string& path) {
  net::FileDescriptor file = opened(path);
  if (!file) throw formatted<Error>("cannot write the log file '{}': {}.", path, std::strerror(errno));
  return file;
}

LogFile::LogFile(std::string path, std::int64_t most_bytes)
    : path_(std::move(path)), most_bytes_(most_bytes), file_(open_log(path_)) {}

std::size_t LogFile::fitting(std::string_view text) const {
  const std::int64_t room = most_bytes_ - bytes_;
  if (most_bytes_ <= 0 || std::ssize(text) <= room) return text.size();
  const auto up_to = [](std::int64_t size) {
    return static_cast<std::size_t>(std::max<std::int64_t>(size, 0));
  };
  const auto last_end = text.substr(0, up_to(room)).rfind('\n');
  if (last_end != std::string_view::npos) return last_end + 1;
  if (line_bytes_ == 0 && bytes_ > 0) return 0;
  const auto first_end = text.find('\n');
  const std::size_t rest = first_end == std::string_view::npos ? text.size() : first_end + 1;
  return std::min(rest, up_to(most_bytes_ - line_bytes_));
}

bool LogFile::begin_next() {
  if (std::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return false;
  // If no new file can be created, the old one is continued.
  if (net::FileDescriptor next = opened(path_)) file_ = std::move(next);
  bytes_ = line_bytes_ = 0;
  return true;
}

void LogFile::count(std::string_view text) {
  bytes_ += std::ssize(text);
  const auto last_end = text.rfind('\n');
  line_bytes_ = last_end == std::string_view::npos ? line_bytes_ + std::ssize(text)
                                                   : std::ssize(text.substr(last_end + 1));
}

bool LogFile::write(std::string_view text) {
  while (!text.empty() && file_) {
    std::size_t size = fitting(text);
    if (size == 0 && !begin_next()) size = text.size();
    const std::string_view part = text.substr(0, size);
    // A file that could not be written counts as empty, and takes no other one's place.
    if (!write_all(file_.get(), part)) {
      file_.reset();
      return false;
    }
    count(part);
    text.remove_prefix(size);
  }
  return true;
}

std::string line_prefix(const std::string& pattern, const std::string& role, int rank, int local_rank) {
  if (pattern.empty()) return fmt::format("[{}{}]:", role, local_rank);
  return substitute_macros(
      pattern,
      {{"role_name", role}, {"rank", std::to_string(rank)}, {"local_rank", std::to_string(local_rank)}});
}

net::FileDescriptor LogForwarder::open(ForwardedStream to) {
  if (!poll_) poll_ = net::FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!poll_) fail_to_forward("epoll_create1");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_to_forward("pipe2");
  net::FileDescriptor source(ends[0]);
  net::FileDescriptor sink(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  // The first process of a rank begins another round.
  const auto is_before = [&](const auto& tail) {
    return tail.first.first == to.local_rank && (to.process == 0 || tail.first.second == to.process);
  };
  if (to.number == STDERR_FILENO) std::erase_if(tails_, is_before);
  const std::string painted_prefix = console_.painted(to.prefix, to.local_rank, to.number);
  streams_.push_back({std::move(source), std::move(to), painted_prefix});
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
    pass_on_lines(stream, "", true);
    // Closing removes it from the poll.
    stream.source.reset();
    return false;
  }
  const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
  if (stream.to.copy) write(*stream.to.copy, text);
  if (stream.to.number == STDERR_FILENO) tails_[{stream.to.local_rank, stream.to.process}].add(text);
  pass_on_lines(stream, text, false);
  return true;
}

void LogForwarder::pass_on_lines(Stream& stream, std::string_view text, bool last) {
  std::string shown;
  const auto take = [&](std::string_view line) {
    if (stream.to.shown) shown.append(stream.painted_prefix).append(line) += '\n';
    if (stream.to.filtered && holds_any(line, stream.to.filters))
      write(*stream.to.filtered, fmt::format("{}{}\n", stream.to.prefix, line));
  };
  stream.splitter.add(text, take);
  if (last) stream.splitter.finish(take);
  console_.stream(stream.to.number).write(std::move(shown));
}

void LogForwarder::write(LogFile& file, std::string_view text) {
  if (file.write(text)) return;
  console_.say("the log file {} ends here, because it cannot be written: {}", file.path(),
               std::strerror(errno));
}

void LogForwarder::pump() {
  if (!poll_) return;
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i)
    pass_on(*static_cast<Stream*>(events[static_cast<std::size_t>(i)].data.ptr));
  drop_ended();
}

void LogForwarder::drop_ended() {
  std::erase_if(streams_, [](const Stream& stream) { return !stream.source; });
}

void LogForwarder::flush() {
  for (auto& stream : streams_) {
    // Limited, so that continuous output does not block the launcher.
    for (int i = 0; i < 1000 && stream.source && pass_on(stream); ++i) continue;
  }
  drop_ended();
}

void LogForwarder::finish() {
  flush();
  for (auto& stream : streams_) pass_on_lines(stream, "", true);
  streams_.clear();
}

std::string LogForwarder::last_lines(int local_rank, int process, int count) const {
  const auto found = tails_.find({local_rank, process});
  return found == tails_.end() ? "" : found->second.last_lines(count);
}

}  // namespace lockstep::launch
