#include "core/runtime/signal_safe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace lockstep::signal_safe {
namespace {

struct Digits {
  char letters[24];
  std::size_t start = sizeof letters;

  Digits(std::uint64_t number, unsigned base) noexcept {
    do {
      letters[--start] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
  }
  std::string_view view() const noexcept { return {letters + start, sizeof letters - start}; }
};

}  // namespace

void put(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

void put_number(int descriptor, std::uint64_t number) noexcept { put(descriptor, Digits(number, 10).view()); }

void put_hex(int descriptor, std::uint64_t number) noexcept {
  put(descriptor, "0x");
  put(descriptor, Digits(number, 16).view());
}

Text& Text::add(std::string_view part) noexcept {
  const std::size_t count = std::min(part.size(), sizeof letters_ - 1 - length_);
  std::memcpy(letters_ + length_, part.data(), count);
  length_ += count;
  return *this;
}

Text& Text::add_number(std::uint64_t number) noexcept { return add(Digits(number, 10).view()); }

Text thread_name(pid_t thread) noexcept {
  Text path;
  path.add("/proc/self/task/").add_number(static_cast<std::uint64_t>(thread)).add("/comm");
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char name[32];
  const ssize_t count = file < 0 ? 0 : read(file, name, sizeof name);
  if (file >= 0) close(file);
  Text result;
  // The last letter is the end of the line.
  return count > 1 ? result.add({name, static_cast<std::size_t>(count) - 1}) : result;
}

void sleep_milliseconds(int count) noexcept {
  timespec left{count / 1000, count % 1000 * 1'000'000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

}  // namespace lockstep::signal_safe
