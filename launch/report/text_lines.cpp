#include "report/text_lines.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/input_file.hpp"

namespace lockstep::launch {
namespace {

constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
constexpr std::size_t kLongestLine = std::size_t{4} << 20;

/// Hands lines on, those that come in pieces when they are complete.
class LineCollector {
 public:
  explicit LineCollector(const std::function<void(const TextLine&)>& take) : take_(take) {}

  void add(std::string_view piece) {
    const std::size_t room = kLongestLine - line_.size();
    is_cut_ = is_cut_ || piece.size() > room;
    line_ += piece.substr(0, room);
  }

  void end(std::string_view piece) {
    // Most lines lie within what was read at once.
    if (line_.empty()) return hand_on(piece, true);
    add(piece);
    hand_on(line_, true);
    line_.clear();
    is_cut_ = false;
  }

  void end_file() {
    if (!line_.empty()) hand_on(line_, false);
  }

 private:
  void hand_on(std::string_view line, bool is_complete) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    take_({line, ++number_, is_complete, is_cut_});
  }

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
      collector.end(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
    collector.add(rest);
  }
  collector.end_file();
}

}  // namespace lockstep::launch
