#include "logs/stderr_tail.hpp"

#include <algorithm>
#include <fstream>

namespace lockstep::launch {

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

std::string last_lines(const std::string& path, int count) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  const std::streamoff length = std::min<std::streamoff>(size, Tail::kMost);
  file.seekg(size - length);
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(text.data(), length);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return last_lines_of(text, count);
}

void Tail::add(std::string_view text) {
  text_ += text.substr(text.size() - std::min(text.size(), kMost));
  if (text_.size() > 2 * kMost) text_.erase(0, text_.size() - kMost);
}

std::string_view Tail::end() const {
  const std::string_view text = text_;
  return text.substr(text.size() - std::min(text.size(), kMost));
}

}  // namespace lockstep::launch
