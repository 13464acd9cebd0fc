#include "core/cluster/hostlist.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// Slurm's own limit (MAX_RANGE).
constexpr std::uint64_t kMostInRange = 65'536;
/// This many digits always fit 64 bits.
constexpr std::size_t kMostDigits = 18;
/// Including leading zeros: a host name has at most 64 characters.
constexpr std::size_t kMostWidth = 64;
constexpr std::string_view kBlanks = " \t\n\r";

struct Range {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::size_t width = 0;

  std::size_t count() const { return high - low + 1; }
};

/// One item: texts[0] brackets[0] texts[1] ... texts.back().
struct Item {
  std::vector<std::string_view> texts;
  std::vector<std::vector<Range>> brackets;
};

class Parser {
 public:
  explicit Parser(std::string_view list) : list_(list) {}

  std::vector<std::string> hosts() {
    std::size_t start = 0;
    while (start < list_.size()) {
      const std::size_t end = item_end(start);
      if (end > start) append(item(list_.substr(start, end - start)));
      start = end + 1;
    }
    return std::move(hosts_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    constexpr std::size_t kShown = 200;
    throw UsageError(fmt::format(
        "host list '{}{}': {}. Expected names and ranges as in n[1-3,07],login, as Slurm writes them.",
        list_.substr(0, kShown), list_.size() > kShown ? "..." : "", what));
  }

  /// The comma or blank that ends the item; those inside brackets do not count.
  std::size_t item_end(std::size_t start) const {
    bool inside = false;
    for (std::size_t i = start; i < list_.size(); ++i) {
      if (list_[i] == '[' || list_[i] == ']') inside = list_[i] == '[';
      if (!inside && (list_[i] == ',' || kBlanks.find(list_[i]) != std::string_view::npos)) return i;
    }
    return list_.size();
  }

  Item item(std::string_view text) const {
    Item result;
    for (auto open = text.find('['); open != std::string_view::npos; open = text.find('[')) {
      const auto close = text.find(']', open);
      if (close == std::string_view::npos) refuse("a '[' is not closed");
      result.texts.push_back(name_part(text.substr(0, open)));
      result.brackets.push_back(ranges(text.substr(open + 1, close - open - 1)));
      text.remove_prefix(close + 1);
    }
    result.texts.push_back(name_part(text));
    return result;
  }

  std::string_view name_part(std::string_view text) const {
    if (text.find(']') != std::string_view::npos) refuse("a ']' has no '['");
    return text;
  }

  std::vector<Range> ranges(std::string_view text) const {
    std::vector<Range> result;
    for (const std::string_view part : split_at_commas(text)) result.push_back(range(part));
    return result;
  }

  Range range(std::string_view text) const {
    const auto dash = std::min(text.find('-'), text.size());
    const std::string_view low = text.substr(0, dash);
    const std::string_view high = dash == text.size() ? low : text.substr(dash + 1);
    const Range result{number(low, text), number(high, text), low.size()};
    if (result.high < result.low) refuse(fmt::format("the range '{}' runs backwards", text));
    if (result.high - result.low >= kMostInRange) {
      refuse(fmt::format("the range '{}' has more than {} hosts", text, kMostInRange));
    }
    return result;
  }

  std::uint64_t number(std::string_view digits, std::string_view range) const {
    const auto value = parse_number<std::uint64_t>(digits);
    const auto zeros = std::min(digits.find_first_not_of('0'), digits.size());
    if (!value || digits.size() - zeros > kMostDigits || digits.size() > kMostWidth) {
      refuse(fmt::format("'{}' is neither a number nor a range of numbers", range));
    }
    return *value;
  }

  /// Checks the number of names so far, a sum or product, against the limit.
  std::size_t within_limit(std::size_t count) const {
    if (count > kMostHosts - hosts_.size()) refuse(fmt::format("more than {} hosts in all", kMostHosts));
    return count;
  }

  void append(const Item& item) {
    std::size_t count = 1;
    std::vector<std::vector<std::string>> choices;
    for (const auto& bracket : item.brackets) {
      std::size_t of_bracket = 0;
      for (const auto& range : bracket) of_bracket = within_limit(of_bracket + range.count());
      count = within_limit(count * of_bracket);
      choices.push_back(numbers(bracket));
    }
    within_limit(count);
    for (std::size_t n = 0; n < count; ++n) hosts_.push_back(name(item, choices, n));
  }

  static std::vector<std::string> numbers(const std::vector<Range>& bracket) {
    std::vector<std::string> result;
    for (const auto& range : bracket) {
      for (std::uint64_t n = range.low; n <= range.high; ++n) {
        result.push_back(fmt::format("{:0{}}", n, range.width));
      }
    }
    return result;
  }

  /// The n-th name of an item. The last bracket varies fastest, then the others from the left.
  static std::string name(const Item& item, const std::vector<std::vector<std::string>>& choices,
                          std::size_t n) {
    std::vector<std::size_t> picked(choices.size());
    for (std::size_t turn = 0; turn < choices.size(); ++turn) {
      const std::size_t bracket = turn == 0 ? choices.size() - 1 : turn - 1;
      picked[bracket] = n % choices[bracket].size();
      n /= choices[bracket].size();
    }
    std::string result(item.texts[0]);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      result += choices[i][picked[i]];
      result += item.texts[i + 1];
    }
    return result;
  }

  std::string_view list_;
  std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list) { return Parser(list).hosts(); }

}  // namespace lockstep
