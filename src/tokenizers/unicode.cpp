#include "tokenizers/unicode.hpp"

#include <map>

#include "tokenizers/unicode_tables.hpp"

namespace lockstep::tokenizer {
namespace {

constexpr std::size_t kCodePoints = 0x110000;

// Hangul syllables are composed by arithmetic (the Unicode standard, section 3.12).
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeads = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kTails = 0x11A7;
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

bool is_syllable(char32_t code) { return code >= kSyllables && code < kSyllables + kSyllableCount; }

CodePair syllable_parts(char32_t code) {
  const char32_t position = code - kSyllables;
  const char32_t tail = position % kTailCount;
  if (tail != 0) return {code - tail, kTails + tail};
  const char32_t vowel = position / kTailCount % kVowelCount;
  return {kLeads + position / (kTailCount * kVowelCount), kVowels + vowel};
}

/// The syllable of the two, or 0.
char32_t syllable(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels && second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  const bool open = is_syllable(first) && (first - kSyllables) % kTailCount == 0;
  return open && second > kTails && second < kTails + kTailCount ? first + (second - kTails) : 0;
}

std::uint64_t pair_key(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

void mark(std::vector<std::uint32_t>& flat, Rows<Range> ranges, Property property) {
  for (const auto& range : ranges) {
    for (auto code = range.first; code <= range.last; ++code) flat[code] |= property;
  }
}

}  // namespace

Unicode::Unicode() {
  std::vector<std::uint32_t> flat(kCodePoints);
  mark(flat, kSpace, kIsSpace);
  mark(flat, kBertControl, kIsBertControl);
  mark(flat, kBertIdeograph, kIsBertIdeograph);
  mark(flat, kBertAccent, kIsBertAccent);
  mark(flat, kCombiningMark, kIsCombiningMark);
  mark(flat, kBertPunctuation, kIsBertPunctuation);
  mark(flat, kWord, kIsWord);
  mark(flat, kDigit, kIsDigit);
  fill_categories(flat);
  fill_forms(flat);
  fill_case(flat);
  fold(flat);
}

void Unicode::fill_categories(std::vector<std::uint32_t>& flat) {
  for (const auto& run : kCategories) {
    const auto category = static_cast<Category>(run.number);
    std::uint32_t properties = 0;
    if (category <= Category::Lo) properties = kIsLetter;
    if (category == Category::Lu || category == Category::Lt) properties |= kIsUpper;
    if (category == Category::Ll) properties |= kIsLower;
    if (category >= Category::Mn && category <= Category::Me) properties = kIsMark;
    if (category >= Category::Nd && category <= Category::No) properties = kIsNumber;
    if (category >= Category::Pc) properties = kIsSymbol;
    for (auto code = run.first; code <= run.last; code += run.step) flat[code] |= properties;
  }
  for (const auto& range : kGraphemeClasses) {
    for (auto code = range.first; code <= range.last; ++code) {
      flat[code] |= std::uint32_t{range.number} << kGraphemeShift;
    }
  }
}

void Unicode::fill_forms(std::vector<std::uint32_t>& flat) {
  std::vector<bool> lost(kCodePoints);
  for (const auto& range : kNotComposed) {
    for (auto code = range.first; code <= range.last; ++code) lost[code] = true;
  }
  for (const auto& row : kDecompositions) {
    flat[row.code] |= kDecomposes;
    decompositions_.emplace(row.code, CodePair{row.first, row.second});
    if (!lost[row.code]) compositions_.emplace(pair_key(row.first, row.second), row.code);
  }
  std::size_t part = 0;
  for (const auto& row : kCompatibilities) {
    for (auto code = row.first; code <= row.last; ++code, part += row.count) {
      compatibilities_.emplace(code, kCompatibilityParts.subspan(part, row.count));
    }
  }
  for (char32_t code = kSyllables; code < kSyllables + kSyllableCount; ++code) flat[code] |= kDecomposes;
  for (const auto& range : kCombiningClasses) {
    for (auto code = range.first; code <= range.last; ++code) {
      flat[code] |= kIsOrdered;
      classes_.emplace(code, range.number);
    }
  }
}

void Unicode::fill_case(std::vector<std::uint32_t>& flat) {
  for (const auto& run : kLowerCase) {
    for (auto code = run.first; code <= run.last; code += run.step) {
      lower_case_.emplace(code,
                          CodePair{static_cast<char32_t>(static_cast<std::int64_t>(code) + run.difference)});
    }
  }
  for (const auto& row : kLowerCasePairs) lower_case_.emplace(row.code, CodePair{row.first, row.second});
  for (const auto& [code, lower] : lower_case_) flat[code] |= kHasLowerCase;
}

/// Deduplicates the blocks of the flat table.
void Unicode::fold(const std::vector<std::uint32_t>& flat) {
  constexpr std::size_t kBlock = std::size_t{1} << kBlockBits;
  std::map<std::vector<std::uint32_t>, std::uint32_t> known;
  for (std::size_t block = 0; block < index_.size(); ++block) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(block * kBlock);
    const std::vector<std::uint32_t> rows(begin, begin + kBlock);
    const auto [entry, is_new] = known.try_emplace(rows, static_cast<std::uint32_t>(blocks_.size()));
    if (is_new) blocks_.insert(blocks_.end(), rows.begin(), rows.end());
    index_[block] = entry->second;
  }
}

const Unicode& Unicode::get() {
  static const Unicode tables;
  return tables;
}

CodePair Unicode::decomposition(char32_t code) const {
  return is_syllable(code) ? syllable_parts(code) : decompositions_.find(code)->second;
}

std::span<const char32_t> Unicode::compatibility(char32_t code) const {
  const auto found = compatibilities_.find(code);
  return found == compatibilities_.end() ? std::span<const char32_t>() : found->second;
}

std::uint8_t Unicode::combining_class(char32_t code) const {
  return is(code, kIsOrdered) ? classes_.find(code)->second : 0;
}

char32_t Unicode::composition(char32_t first, char32_t second) const {
  if (const auto composed = syllable(first, second); composed != 0) return composed;
  const auto found = compositions_.find(pair_key(first, second));
  return found == compositions_.end() ? 0 : found->second;
}

}  // namespace lockstep::tokenizer
