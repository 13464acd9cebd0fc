#include "tokenizers/regex.hpp"

#include <fmt/core.h>
#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "lockstep/core/error.hpp"
#include "tokenizers/unicode.hpp"
#include "tokenizers/unicode_tables.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// Longer expressions (in bytes) are rejected: those in use have a few hundred.
constexpr std::size_t kLongestExpression = 1U << 16;
/// Backtracking limit of one match: Oniguruma's default, and so that of the Python package, which terminates
/// the program there.
constexpr unsigned long kRetriesInMatch = 10'000'000;
/// Backtracking steps that a search may take per byte of the text, in addition to those of one match.
constexpr unsigned long kRetriesInSearch = 64;
/// Limit of a match's backtracking stack: about 200 MB.
constexpr unsigned int kMatchStack = 1U << 22;

constexpr std::uint32_t bits(Category first, Category last) {
  return (2U << static_cast<unsigned>(last)) - (1U << static_cast<unsigned>(first));
}
constexpr std::uint32_t bit(Category category) { return bits(category, category); }

/// A property's names in expressions, and its general categories; none for the script Han.
struct KnownProperty {
  std::string_view name;
  std::string_view long_name;
  std::uint32_t categories;
};
/// Oniguruma supports at most 20 user-defined properties. All others use its own, older Unicode version.
constexpr KnownProperty kProperties[] = {
    {"l", "letter", bits(Category::Lu, Category::Lo)},
    {"lu", "uppercaseletter", bit(Category::Lu)},
    {"ll", "lowercaseletter", bit(Category::Ll)},
    {"lt", "titlecaseletter", bit(Category::Lt)},
    {"lm", "modifierletter", bit(Category::Lm)},
    {"lo", "otherletter", bit(Category::Lo)},
    {"m", "mark", bits(Category::Mn, Category::Me)},
    {"mn", "nonspacingmark", bit(Category::Mn)},
    {"mc", "spacingmark", bit(Category::Mc)},
    {"n", "number", bits(Category::Nd, Category::No)},
    {"nd", "decimalnumber", bit(Category::Nd)},
    {"nl", "letternumber", bit(Category::Nl)},
    {"no", "othernumber", bit(Category::No)},
    {"p", "punctuation", bits(Category::Pc, Category::Po)},
    {"po", "otherpunctuation", bit(Category::Po)},
    {"s", "symbol", bits(Category::Sm, Category::So)},
    {"sm", "mathsymbol", bit(Category::Sm)},
    {"so", "othersymbol", bit(Category::So)},
    {"han", "hani", 0},
};
constexpr std::string_view kOwn = "lockstep";

/// Initializes Oniguruma, and defines the properties of our tables under our own names: a system's Oniguruma
/// has an older Unicode version than the Python package.
class Library {
 public:
  Library() {
    OnigEncoding encoding = ONIG_ENCODING_UTF8;
    onig_initialize(&encoding, 1);
    std::vector<std::uint8_t> categories(0x110000);
    for (const auto& run : kCategories) {
      for (auto code = run.first; code <= run.last; code += run.step) categories[code] = run.number;
    }
    for (std::size_t index = 0; index < ranges_.size(); ++index) {
      const auto& property = kProperties[index];
      if (property.categories == 0) {
        add_han(index);
      } else {
        add_categories(index, categories);
      }
      ranges_[index][0] = static_cast<OnigCodePoint>(ranges_[index].size() / 2);
      const auto name = std::string(kOwn) + std::string(property.name);
      const int error = onig_unicode_define_user_property(name.c_str(), ranges_[index].data());
      if (error != ONIG_NORMAL) throw std::logic_error("Oniguruma takes no property " + name);
    }
  }

 private:
  void add_categories(std::size_t index, const std::vector<std::uint8_t>& categories) {
    auto& ranges = ranges_[index];
    bool inside = false;
    for (std::uint32_t code = 0; code <= categories.size(); ++code) {
      const bool has =
          code < categories.size() && (kProperties[index].categories >> categories[code] & 1U) != 0;
      if (has != inside) ranges.push_back(has ? code : code - 1);
      inside = has;
    }
  }
  void add_han(std::size_t index) {
    for (const auto& range : kHan) {
      ranges_[index].push_back(range.first);
      ranges_[index].push_back(range.last);
    }
  }

  /// For each property the number of ranges, then the first and last code point of each. Oniguruma keeps
  /// reading them.
  std::array<std::vector<OnigCodePoint>, std::size(kProperties)> ranges_ = [] {
    std::array<std::vector<OnigCodePoint>, std::size(kProperties)> empty;
    empty.fill({0});
    return empty;
  }();
};

/// A name normalized as Oniguruma compares it.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char letter : name) {
    if (letter == ' ' || letter == '-' || letter == '_') continue;
    plain += letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter;
  }
  return plain;
}

/// The text between the braces of \p{...}, with our own name for the property if there is one.
std::string own_name(std::string_view inside) {
  const bool inverted = inside.starts_with('^');
  const auto name = plain_name(inside.substr(inverted ? 1 : 0));
  for (const auto& property : kProperties) {
    if (name != property.name && name != property.long_name) continue;
    return fmt::format("{}{}{}", inverted ? "^" : "", kOwn, property.name);
  }
  return std::string(inside);
}

/// A class that the package's Oniguruma takes for these properties.
struct Synonym {
  std::string_view text;
  std::string_view own;
  bool in_brackets;
};
constexpr Synonym kSynonyms[] = {
    {"\\d", "\\p{lockstepnd}", false},
    {"\\D", "\\P{lockstepnd}", false},
    {"[:digit:]", "\\p{lockstepnd}", true},
    {"[:^digit:]", "\\P{lockstepnd}", true},
    {"[:punct:]", "\\p{lockstepp}\\p{locksteps}", true},
    {"[:^punct:]", "[^\\p{lockstepp}\\p{locksteps}]", true},
};

/// The expression with our names of properties.
std::string with_own_properties(std::string_view expression) {
  std::string result;
  int brackets = 0;
  for (std::size_t position = 0; position < expression.size();) {
    const auto rest = expression.substr(position);
    const auto end = rest.find('}');
    if ((rest.starts_with("\\p{") || rest.starts_with("\\P{")) && end != std::string_view::npos) {
      result += rest.substr(0, 3);
      result += own_name(rest.substr(3, end - 3));
      position += end;
      continue;
    }
    const auto* const synonym = std::ranges::find_if(kSynonyms, [&](const Synonym& each) {
      return rest.starts_with(each.text) && (brackets > 0 || !each.in_brackets);
    });
    if (synonym != std::end(kSynonyms)) {
      result += synonym->own;
      position += synonym->text.size();
    } else {
      if (rest[0] == '[') ++brackets;
      if (rest[0] == ']' && brackets > 0) --brackets;
      const std::size_t length = rest[0] == '\\' ? std::min<std::size_t>(2, rest.size()) : 1;
      result += rest.substr(0, length);
      position += length;
    }
  }
  return result;
}

struct FreeRegion {
  void operator()(OnigRegion* region) const noexcept { onig_region_free(region, 1); }
};
struct FreeParameters {
  void operator()(OnigMatchParam* parameters) const noexcept { onig_free_match_param(parameters); }
};

const OnigUChar* bytes(const char* text) { return reinterpret_cast<const OnigUChar*>(text); }

std::string message(int error, OnigErrorInfo* info) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> text{};
  const int length = info == nullptr ? onig_error_code_to_str(text.data(), error)
                                     : onig_error_code_to_str(text.data(), error, info);
  return repaired_utf8({reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(length)});
}

std::string describe_expression(const std::string& expression, const std::string& location) {
  return fmt::format("the regular expression '{}' ({})",
                     repaired_utf8(std::string_view(expression).substr(0, 300)), location);
}

bool is_limit(int error) {
  return error == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER || error == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER ||
         error == ONIGERR_MATCH_STACK_LIMIT_OVER;
}

}  // namespace

void Regex::Free::operator()(re_pattern_buffer* regex) const noexcept { onig_free(regex); }

Regex::Regex(std::string expression, std::string location)
    : expression_(std::move(expression)), location_(std::move(location)) {
  static const Library library;
  if (expression_.size() > kLongestExpression) {
    throw DataError(
        fmt::format("{} has more than 65536 bytes, the limit.", describe_expression(expression_, location_)));
  }
  OnigErrorInfo info{};
  OnigRegex compiled = nullptr;
  const auto own = with_own_properties(expression_);
  const auto* begin = bytes(own.data());
  const int error = onig_new(&compiled, begin, begin + own.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                             ONIG_SYNTAX_DEFAULT, &info);
  regex_.reset(compiled);
  if (error != ONIG_NORMAL) {
    throw DataError(fmt::format("{} cannot be used: {}.", describe_expression(expression_, location_),
                                message(error, &info)));
  }
}

void Regex::fail(int error) const {
  if (is_limit(error)) {
    throw DataError(
        fmt::format("{} takes too many steps on this text: it tries more than the limit of ways to match "
                    "({}). Rewrite it without nested repetitions.",
                    describe_expression(expression_, location_), message(error, nullptr)));
  }
  throw DataError(fmt::format("{} failed on this text: {}.", describe_expression(expression_, location_),
                              message(error, nullptr)));
}

/// Ignores an empty match right after another match, like the Python package: the search continues one
/// character later.
void Regex::find_all(std::string_view text, ByteRanges& matches) const {
  const std::unique_ptr<OnigRegion, FreeRegion> region(onig_region_new());
  const std::unique_ptr<OnigMatchParam, FreeParameters> parameters(onig_new_match_param());
  if (region == nullptr || parameters == nullptr) throw std::bad_alloc();
  onig_set_retry_limit_in_match_of_match_param(parameters.get(), kRetriesInMatch);
  onig_set_retry_limit_in_search_of_match_param(parameters.get(),
                                                kRetriesInMatch + kRetriesInSearch * text.size());
  onig_set_match_stack_limit_size_of_match_param(parameters.get(), kMatchStack);
  const auto* const begin = bytes(text.data());
  const auto* const end = begin + text.size();
  bool has_last = false;
  std::size_t last = 0;
  for (std::size_t position = 0; !text.empty() && position <= text.size();) {
    const int found = onig_search_with_param(regex_.get(), begin, end, begin + position, end, region.get(),
                                             ONIG_OPTION_NONE, parameters.get());
    if (found == ONIG_MISMATCH) break;
    if (found < 0) fail(found);
    const auto from = static_cast<std::size_t>(region->beg[0]);
    const auto to = static_cast<std::size_t>(region->end[0]);
    if (from == to && has_last && last == to) {
      position += position < text.size() ? sequence_length(text[position]) : 1;
      continue;
    }
    matches.push_back({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)});
    position = last = to;
    has_last = true;
  }
}

}  // namespace lockstep::tokenizer
