#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::tokenizer {

// The tables written by scripts/make_unicode_tables.py. Only unicode.cpp, regex.cpp and splitters.cpp use
// them.

/// Code points from `first` to `last`.
struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

/// A code point and its decomposition; `second` is 0 if that is a single code point.
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

/// Code points of one class. Combining marks are sorted by ascending class.
struct ClassRange {
  std::uint32_t first;
  std::uint32_t last;
  std::uint8_t number;
};

/// Every `step`-th code point from `first` to `last` has the class `number`.
struct ClassRun {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t step;
  std::uint8_t number;
};

/// The lower case of every `step`-th code point from `first` to `last` is the code point plus `difference`.
struct CaseRun {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t step;
  std::int32_t difference;
};

/// A code point whose lower case is two code points.
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
/// By the numbers of Category and GraphemeClass.
extern const Rows<ClassRun> kCategories;
extern const Rows<ClassRange> kGraphemeClasses;
/// By scripts, in order of code points; the numbers are this table's own.
extern const Rows<ClassRange> kScripts;
extern const Rows<Decomposition> kDecompositions;
extern const Rows<Compatibility> kCompatibilities;
/// The parts of all compatibility decompositions, in order.
extern const Rows<char32_t> kCompatibilityParts;
extern const Rows<Range> kNotComposed;
extern const Rows<ClassRange> kCombiningClasses;
extern const Rows<CaseRun> kLowerCase;
extern const Rows<CasePair> kLowerCasePairs;

}  // namespace lockstep::tokenizer
