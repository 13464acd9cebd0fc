#include "logs/line_splitter.hpp"

namespace lockstep::launch {

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

}  // namespace lockstep::launch
