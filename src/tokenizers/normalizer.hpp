#pragma once

#include <memory>
#include <string_view>

#include "json_file.hpp"
#include "normalized_string.hpp"

namespace lockstep::tokenizer {

/// Changes text before it is split: case, accents, normal forms. Immutable.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;

  virtual void apply(Characters& text) const = 0;

  /// Sets `result` to the normalized form of a valid text whose first character has the number `first`.
  virtual void normalize(std::string_view text, std::uint32_t first, NormalizedString& result) const;
};

/// The normalizer that a file's field "normalizer" describes. Throws DataError for one that is not supported.
std::unique_ptr<const Normalizer> make_normalizer(const Node& node);

/// The normal form of a text alone.
std::string normalized(const Normalizer* normalizer, std::string_view text);

}  // namespace lockstep::tokenizer
