#include "report/html_text.hpp"

#include "core/text.hpp"
#include "core/utf8_check.hpp"

namespace lockstep::launch {
namespace {

std::string escaped(char letter) {
  switch (letter) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    case '\t':
    case '\n':
      return {letter};
    default:
      return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f ? "\xef\xbf\xbd"
                                                                         : std::string(1, letter);
  }
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string result;
  for (const char letter : utf8_text(text)) result += escaped(letter);
  return result;
}

std::string short_html_text(std::string_view text, std::size_t most) {
  return html_text(shorten_text(utf8_text(text), most));
}

}  // namespace lockstep::launch
