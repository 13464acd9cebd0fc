#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace lockstep::tokenizer {

/// Properties of code points. Each is as the corresponding part of the Python package sees it: the parts use
/// different Unicode versions.
enum Property : std::uint32_t {
  kIsSpace = 1 << 0,
  /// Removed by BertNormalizer's clean_text.
  kIsBertControl = 1 << 1,
  /// Separated by BertNormalizer's handle_chinese_chars.
  kIsBertIdeograph = 1 << 2,
  /// Removed by BertNormalizer's strip_accents.
  kIsBertAccent = 1 << 3,
  /// Removed by the normalizer StripAccents.
  kIsCombiningMark = 1 << 4,
  kIsBertPunctuation = 1 << 5,
  /// \w of the pre-tokenizer Whitespace and of added tokens that are single words.
  kIsWord = 1 << 6,
  /// \p{L}, \p{N}, \p{M} of regular expressions; [\p{P}\p{S}], [\p{Lu}\p{Lt}], \p{Ll}.
  kIsLetter = 1 << 7,
  kIsNumber = 1 << 8,
  kHasLowerCase = 1 << 9,
  kDecomposes = 1 << 10,
  /// A mark that canonical ordering may move.
  kIsOrdered = 1 << 11,
  kIsMark = 1 << 12,
  kIsSymbol = 1 << 13,
  kIsUpper = 1 << 14,
  kIsLower = 1 << 15,
  /// Split by the pre-tokenizer Digits, whose Unicode version is newer than that of \p{N}.
  kIsDigit = 1 << 16,
};

/// Determines the boundaries of grapheme clusters, the characters as users see them (Unicode Standard Annex
/// 29). There are three kinds of extending marks; Indic consonants that are joined by a linker form one
/// cluster.
enum class GraphemeClass : std::uint8_t {
  other,
  control,
  extend,
  conjunct_extend,
  linker,
  spacing,
  prepend,
  lead,
  vowel,
  tail,
  pictographic,
  consonant,
};

/// General categories, in the order of make_unicode_tables.py.
enum class Category : std::uint8_t {
  none,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
};

/// Up to two code points; `second` is 0 if there is only one.
struct CodePair {
  char32_t first = 0;
  char32_t second = 0;
};

/// The tables, arranged for lookup. Immutable: any thread may use them.
class Unicode {
 public:
  /// Built on the first call, in a few milliseconds.
  static const Unicode& get();

  std::uint32_t properties(char32_t code) const noexcept {
    return blocks_[index_[code >> kBlockBits] + (code & kBlockMask)];
  }
  bool is(char32_t code, Property property) const noexcept { return (properties(code) & property) != 0; }

  GraphemeClass grapheme_class(char32_t code) const noexcept {
    return static_cast<GraphemeClass>(properties(code) >> kGraphemeShift);
  }

  /// For a code point with kHasLowerCase.
  CodePair lower_case(char32_t code) const { return lower_case_.find(code)->second; }
  /// One step of canonical decomposition, for a code point with kDecomposes.
  CodePair decomposition(char32_t code) const;
  /// The full compatibility decomposition if it differs from the canonical one, otherwise empty.
  std::span<const char32_t> compatibility(char32_t code) const;
  /// 0 for code points that canonical ordering does not move.
  std::uint8_t combining_class(char32_t code) const;
  /// The primary composite of the two, or 0.
  char32_t composition(char32_t first, char32_t second) const;

 private:
  static constexpr unsigned kBlockBits = 7;
  static constexpr char32_t kBlockMask = (1U << kBlockBits) - 1;

  /// The grapheme class is in the bits above the properties.
  static constexpr unsigned kGraphemeShift = 24;

  Unicode();
  void fill_categories(std::vector<std::uint32_t>& flat);
  void fill_forms(std::vector<std::uint32_t>& flat);
  void fill_case(std::vector<std::uint32_t>& flat);
  void fold(const std::vector<std::uint32_t>& flat);

  std::array<std::uint32_t, (0x110000U >> kBlockBits)> index_{};
  std::vector<std::uint32_t> blocks_;
  std::unordered_map<char32_t, CodePair> lower_case_;
  std::unordered_map<char32_t, CodePair> decompositions_;
  std::unordered_map<char32_t, std::span<const char32_t>> compatibilities_;
  std::unordered_map<char32_t, std::uint8_t> classes_;
  std::unordered_map<std::uint64_t, char32_t> compositions_;
};

}  // namespace lockstep::tokenizer
