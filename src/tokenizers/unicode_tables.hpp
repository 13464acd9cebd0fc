#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::tokenizer {

// The tables that scripts/make_unicode_tables.py writes. unicode.cpp and regex.cpp alone read them.

/// Code points from `first` to `last`.
struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

/// A code point and what it decomposes into; `second` is 0 where that is a single one.
struct Decomposition {
  std::uint32_t code;
  std::uint32_t first;
  std::uint32_t second;
};

/// Code points from `first` to `last`, whose compatibility decompositions have `count` parts each.
struct Compatibility {
  std::uint32_t first;
  std::uint32_t last;
  std::uint8_t count;
};

/// Code points of one class. Of combining marks, a lower class goes before a higher one.
struct ClassRange {
  std::uint32_t first;
  std::uint32_t last;
  std::uint8_t number;
};

/// Every `step`-th code point from `first` to `last` is of a class.
struct ClassRun {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t step;
  std::uint8_t number;
};

/// Every `step`-th code point from `first` to `last` becomes itself plus `difference`.
struct CaseRun {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t step;
  std::int32_t difference;
};

/// A code point whose lower case is two.
struct CasePair {
  std::uint32_t code;
  std::uint32_t first;
  std::uint32_t second;
};

template <class Row>
using Rows = std::span<const Row>;

extern const Rows<Range> kSpace;
extern const Rows<Range> kBertControl;
extern const Rows<Range> kBertIdeograph;
extern const Rows<Range> kBertAccent;
extern const Rows<Range> kCombiningMark;
extern const Rows<Range> kBertPunctuation;
extern const Rows<Range> kWord;
extern const Rows<Range> kDigit;
extern const Rows<Range> kHan;
/// By the numbers of Category, and of GraphemeClass.
extern const Rows<ClassRun> kCategories;
extern const Rows<ClassRange> kGraphemeClasses;
extern const Rows<Decomposition> kDecompositions;
extern const Rows<Compatibility> kCompatibilities;
/// Those of all of these, in order.
extern const Rows<char32_t> kCompatibilityParts;
extern const Rows<Range> kNotComposed;
extern const Rows<ClassRange> kCombiningClasses;
extern const Rows<CaseRun> kLowerCase;
extern const Rows<CasePair> kLowerCasePairs;

}  // namespace lockstep::tokenizer
