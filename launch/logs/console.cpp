#include "logs/console.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/runtime/signal_free_thread.hpp"
#include "core/text.hpp"
#include "net/deadline.hpp"

namespace lockstep::launch {

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
    if (count >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    // Another process has made the shared terminal non-blocking.
    net::await_ready(descriptor, POLLOUT, net::Deadline::max());
  }
  return true;
}

AsyncWriter::AsyncWriter(int descriptor, std::size_t most_waiting)
    : descriptor_(descriptor), most_waiting_(most_waiting) {}

AsyncWriter::~AsyncWriter() {
  {
    const std::lock_guard lock(mutex_);
    note_dropped();
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void AsyncWriter::add(std::string lines, bool may_be_dropped) {
  const std::lock_guard lock(mutex_);
  if (broken_ || lines.empty()) return;
  if (may_be_dropped && bytes_ + lines.size() > most_waiting_) {
    dropped_ += count_line_ends(lines);
    return;
  }
  note_dropped();
  push(std::move(lines));
}

void AsyncWriter::note_dropped() {
  if (dropped_ == 0) return;
  push(
      fmt::format("lockstep run: {} lines of the ranks were dropped here, because they were not read fast "
                  "enough (--log-dir keeps all)\n",
                  std::exchange(dropped_, 0)));
}

void AsyncWriter::push(std::string lines) {
  bytes_ += lines.size();
  waiting_.push_back(std::move(lines));
  if (!thread_.joinable()) thread_ = signal_free_thread([this] { run(); });
  changed_.notify_all();
}

void AsyncWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::string lines = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const bool written = write_all(descriptor_, lines);
    // Nobody misses what is written to a pipe without a reader.
    if (!written && errno != EPIPE && descriptor_ != STDERR_FILENO) {
      write_all(STDERR_FILENO, fmt::format("lockstep run: cannot write to standard output: {}. "
                                           "All further output of the ranks is lost.\n",
                                           std::strerror(errno)));
    }
    lock.lock();
    bytes_ -= lines.size();
    broken_ = !written;
    if (broken_) return waiting_.clear();
  }
}

Console::Console(const Environment& environment)
    : colours_(find_variable(environment, "NO_COLOR").value_or("").empty() &&
               find_variable(environment, "TERM").value_or("dumb") != "dumb"),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {}

std::string Console::painted(const std::string& text, int rank, int stream) const {
  if (!colours_ || isatty(stream) != 1) return text;
  // Red is reserved for errors.
  constexpr std::array<const char*, 10> kColours{"36", "32", "33", "35", "34", "96", "92", "93", "95", "94"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kColours[static_cast<std::size_t>(rank) % kColours.size()], text);
}

}  // namespace lockstep::launch
