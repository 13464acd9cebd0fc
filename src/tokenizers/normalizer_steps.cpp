#include "normalizer_steps.hpp"

namespace lockstep::tokenizer {
namespace {

Character with_code(Character character, char32_t code) {
  character.code = code;
  return character;
}

}  // namespace

void remove(Characters& text, Property property) {
  const auto& unicode = Unicode::get();
  std::erase_if(text, [&](const Character& character) { return unicode.is(character.code, property); });
}

void blank_spaces(Characters& text) {
  const auto& unicode = Unicode::get();
  for (auto& character : text) {
    if (unicode.is(character.code, kIsSpace)) character.code = U' ';
  }
}

void set_apart(Characters& text, Property property) {
  const auto& unicode = Unicode::get();
  Characters result;
  result.reserve(text.size());
  for (const auto& character : text) {
    const bool apart = unicode.is(character.code, property);
    if (apart) result.push_back(with_code(character, U' '));
    result.push_back(character);
    if (apart) result.push_back(with_code(character, U' '));
  }
  text = std::move(result);
}

void lower(Characters& text) {
  const auto& unicode = Unicode::get();
  Characters result;
  result.reserve(text.size());
  for (const auto& character : text) {
    if (!unicode.is(character.code, kHasLowerCase)) {
      result.push_back(character);
      continue;
    }
    const auto lowered = unicode.lower_case(character.code);
    result.push_back(with_code(character, lowered.first));
    if (lowered.second != 0) result.push_back(with_code(character, lowered.second));
  }
  text = std::move(result);
}

}  // namespace lockstep::tokenizer
