#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizers/pattern.hpp"

struct re_pattern_buffer;

namespace lockstep::tokenizer {

/// A regular expression compiled by Oniguruma, which the Python package uses too. Immutable: any thread may
/// search.
class Regex {
 public:
  /// `location` is where the expression stands, for errors. Throws DataError, naming both, if it cannot be
  /// compiled.
  Regex(std::string expression, std::string location);

  /// See Pattern::find_all.
  void find_all(std::string_view text, ByteRanges& matches) const;

 private:
  struct Free {
    void operator()(re_pattern_buffer* regex) const noexcept;
  };
  [[noreturn]] void fail(int error) const;

  std::string expression_;
  std::string location_;
  std::unique_ptr<re_pattern_buffer, Free> regex_;
};

}  // namespace lockstep::tokenizer
