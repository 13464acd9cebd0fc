#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::tokenizer {

// The tables that scripts/make_unicode_tables.py writes. Only unicode.cpp reads them.

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

/// Marks of one class; a lower class goes before a higher one.
struct ClassRange {
  std::uint32_t first;
  std::uint32_t last;
  std::uint8_t combining_class;
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
extern const Rows<Range> kLetter;
extern const Rows<Range> kNumber;
extern const Rows<Decomposition> kDecompositions;
extern const Rows<Range> kNotComposed;
extern const Rows<ClassRange> kCombiningClasses;
extern const Rows<CaseRun> kLowerCase;
extern const Rows<CasePair> kLowerCasePairs;

}  // namespace lockstep::tokenizer
