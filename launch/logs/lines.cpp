#include "logs/lines.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/file_system.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::launch {
namespace {

std::string_view end_of(std::string_view text, std::size_t most) {
  return text.substr(text.size() - std::min(text.size(), most));
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

/// Where the first line begins that is not complete.
std::size_t LineSplitter::take_lines(const Take& take) {
  const std::string_view text = partial_;
  std::size_t start = 0;
  for (;;) {
    const auto end = text.find_first_of("\r\n", start);
    if (end == std::string_view::npos) return start;
    const bool returned = text[end] == '\r';
    // It may be the first half of a line end of two.
    if (returned && end + 1 == text.size()) return start;
    const bool both = returned && text[end + 1] == '\n';
    // A bar begins with the return to the start of its line.
    if (end > start || !returned || both) take(text.substr(start, end - start));
    start = end + (both ? 2 : 1);
  }
}

void LineSplitter::add(std::string_view text, const Take& take) {
  partial_ += text;
  partial_.erase(0, take_lines(take));
  if (partial_.size() > kLongest) finish(take);
}

void LineSplitter::finish(const Take& take) {
  if (partial_.ends_with('\r')) partial_.pop_back();
  if (!partial_.empty()) take(partial_);
  partial_.clear();
}

void Tail::add(std::string_view text) {
  text_ += end_of(text, kMost);
  if (text_.size() > 2 * kMost) text_.erase(0, text_.size() - kMost);
}

std::string Tail::last_lines(int count) const { return last_lines_of(end_of(text_, kMost), count); }

std::optional<std::string> read_end(const std::string& path, std::size_t most) {
  const net::FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto size = static_cast<std::size_t>(status.st_size);
  std::string text(std::min(size, most), '\0');
  const auto start = static_cast<off_t>(size - text.size());
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t count = file_system::uninterrupted([&] {
      return pread(file.get(), text.data() + length, text.size() - length,
                   start + static_cast<off_t>(length));
    });
    if (count <= 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

std::string last_lines(const std::string& path, int count) {
  return last_lines_of(read_end(path, Tail::kMost).value_or(""), count);
}

}  // namespace lockstep::launch
