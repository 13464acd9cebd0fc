#include "tokenizers/jinja/output.hpp"

#include "tokenizers/jinja/characters.hpp"

namespace lockstep::jinja {

void Output::add(std::string_view more) {
  text_.add(more);
  characters_ += count_characters(more);
}

}  // namespace lockstep::jinja
