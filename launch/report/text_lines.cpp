#include "report/text_lines.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/input_file.hpp"

namespace lockstep::launch {
namespace {

constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = std::size_t{4} << 20;

/// Collects the pieces of a line, and hands it on when it is complete.
class LineCollector {
 public:
  explicit LineCollector(const std::function<void(const TextLine&)>& take) : take_(take) {}

  void add(std::string_view piece) {
    const std::size_t room = kLongestLine - line_.size();
    is_cut_ = is_cut_ || piece.size() > room;
    line_ += piece.substr(0, room);
  }

  void end(bool is_complete) {
    ++number_;
    if (line_.ends_with('\r')) line_.pop_back();
    take_({line_, number_, is_complete, is_cut_});
    line_.clear();
    is_cut_ = false;
  }

  bool is_empty() const { return line_.empty(); }

 private:
  const std::function<void(const TextLine&)>& take_;
  std::string line_;
  std::size_t number_ = 0;
  bool is_cut_ = false;
};

}  // namespace

void read_lines(const std::filesystem::path& path, const std::function<void(const TextLine&)>& take) {
  InputFile file(path);
  LineCollector collector(take);
  std::string buffer;
  for (std::uint64_t left = file.size(); left > 0;) {
    buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left, kBytesAtOnce)));
    file.read(buffer.data(), buffer.size());
    left -= buffer.size();
    std::string_view rest = buffer;
    for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      collector.add(rest.substr(0, end));
      collector.end(true);
      rest.remove_prefix(end + 1);
    }
    collector.add(rest);
  }
  if (!collector.is_empty()) collector.end(false);
}

}  // namespace lockstep::launch
