#include "process/command_words.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace lockstep::launch {
namespace {

bool in_name(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_'; }

/// The name behind a '$', and how long it is written, braces included; 0: there is no name.
struct Name {
  std::string_view text;
  std::size_t length = 0;
};

Name name_at(std::string_view after) {
  const bool braced = after.starts_with('{');
  const std::string_view rest = after.substr(braced ? 1 : 0);
  const auto stop = std::find_if_not(rest.begin(), rest.end(), in_name);
  const auto length = static_cast<std::size_t>(stop - rest.begin());
  if (!braced) return {rest.substr(0, length), length};
  const bool closed = stop != rest.end() && *stop == '}';
  return closed ? Name{rest.substr(0, length), length + 2} : Name{};
}

}  // namespace

std::string substituted(const std::string& text, const std::vector<Macro>& macros) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, 2, "$$") == 0) {
      result += "$$";
      at += 2;
      continue;
    }
    const Name name = text[at] == '$' ? name_at(std::string_view(text).substr(at + 1)) : Name{};
    const auto macro = std::find_if(macros.begin(), macros.end(),
                                    [&](const Macro& candidate) { return candidate.first == name.text; });
    const bool known = name.length > 0 && macro != macros.end();
    result += known ? macro->second : std::string(1, text[at]);
    at += known ? name.length + 1 : 1;
  }
  return result;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string result = "'";
  for (const char letter : word) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

}  // namespace lockstep::launch
