#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tokenizers/jinja/budget.hpp"

namespace lockstep::jinja {

/// The text that a template or a part of it writes.
class Output {
 public:
  explicit Output(Budget& budget) : text_(budget) {}

  void add(std::string_view more);
  std::size_t characters() const { return characters_; }
  std::string take() { return text_.take(); }

 private:
  Text text_;
  std::size_t characters_ = 0;
};

}  // namespace lockstep::jinja
