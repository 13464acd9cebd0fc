#include "tokenizers/pattern_splitters.hpp"

#include <array>

#include "tokenizers/unicode.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Class : unsigned char { letter, number, space, other, end };

Class class_of(char32_t code) {
  const auto properties = Unicode::get().properties(code);
  if ((properties & kIsLetter) != 0) return Class::letter;
  if ((properties & kIsNumber) != 0) return Class::number;
  return (properties & kIsSpace) != 0 ? Class::space : Class::other;
}

std::array<Class, 128> ascii_classes() {
  std::array<Class, 128> classes{};
  for (char32_t code = 0; code < 128; ++code) classes[code] = class_of(code);
  return classes;
}

/// Finds the end of the next word: the rules that the patterns have in common.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::string_view text() const { return text_; }
  Class at(std::size_t position) const { return peek(position); }

  /// The end of the character at `position`.
  std::size_t after(std::size_t position) const { return position + sequence_length(text_[position]); }

  /// The end of the run of at most `most` characters of a class that begins at `position`.
  std::size_t run(Class wanted, std::size_t position, std::size_t most = ~std::size_t{0}) const {
    for (; most > 0 && peek(position) == wanted; --most) position = after(position);
    return position;
  }

  /// \s+(?!\S)|\s+ at white space: all of it at the end of the text, otherwise all but the last character, if
  /// there is more than one.
  std::size_t spaces(std::size_t position) const {
    const auto end = run(Class::space, position);
    if (end == text_.size()) return end;
    auto last = end;
    previous_character(text_, last);
    return last > position ? last : end;
  }

  /// The length of a contraction: the apostrophe and the letters after it, or 0.
  std::size_t contraction(std::size_t position, bool any_case) const {
    if (text_[position] != '\'') return 0;
    const auto first = letter(position + 1, any_case);
    const auto second = letter(position + 2, any_case);
    if (any_case && text_.substr(position + 1).starts_with("\xC5\xBF")) return 3;  // the long s
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    return first == 's' || first == 't' || first == 'm' || first == 'd' ? 2 : 0;
  }

 private:
  Class peek(std::size_t position) const {
    static const auto ascii = ascii_classes();
    if (position >= text_.size()) return Class::end;
    if (is_ascii(text_[position])) return ascii[static_cast<unsigned char>(text_[position])];
    return class_of(next_character(text_, position));
  }

  char letter(std::size_t position, bool any_case) const {
    if (position >= text_.size()) return '\0';
    const char byte = text_[position];
    return any_case && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + ('a' - 'A')) : byte;
  }

  std::string_view text_;
};

bool is_newline(char byte) { return byte == '\r' || byte == '\n'; }

std::size_t gpt2_word(const Scanner& scanner, std::size_t begin) {
  if (const auto length = scanner.contraction(begin, false); length > 0) return begin + length;
  const auto start = scanner.text()[begin] == ' ' ? begin + 1 : begin;
  const auto kind = scanner.at(start);
  if (kind == Class::space || kind == Class::end) return scanner.spaces(begin);
  return scanner.run(kind, start);
}

/// White space: up to its last newline, if it has one.
std::size_t spaces_by_line(const Scanner& scanner, std::size_t begin) {
  const auto text = scanner.text();
  for (auto end = scanner.run(Class::space, begin); end > begin; --end) {
    if (is_newline(text[end - 1])) return end;
  }
  return scanner.spaces(begin);
}

template <std::size_t digits>
std::size_t llama_word(const Scanner& scanner, std::size_t begin) {
  const auto text = scanner.text();
  if (const auto length = scanner.contraction(begin, true); length > 0) return begin + length;
  const auto kind = scanner.at(begin);
  if (kind == Class::letter) return scanner.run(kind, begin);
  if (kind == Class::number) return scanner.run(kind, begin, digits);
  const auto second = scanner.after(begin);
  if (!is_newline(text[begin]) && scanner.at(second) == Class::letter)
    return scanner.run(Class::letter, second);
  const auto start = text[begin] == ' ' ? second : begin;
  if (scanner.at(start) != Class::other) return spaces_by_line(scanner, begin);
  auto end = scanner.run(Class::other, start);
  while (end < text.size() && is_newline(text[end])) ++end;
  return end;
}

template <std::size_t (*word)(const Scanner&, std::size_t)>
void split_all(std::string_view text, Words& words) {
  const Scanner scanner(text);
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = word(scanner, begin);
    words.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    begin = end;
  }
}

}  // namespace

void split_gpt2(std::string_view text, Words& words) { split_all<gpt2_word>(text, words); }

void split_llama3(std::string_view text, Words& words) { split_all<llama_word<3>>(text, words); }

void split_qwen2(std::string_view text, Words& words) { split_all<llama_word<1>>(text, words); }

Splitter find_pattern(std::string_view pattern) noexcept {
  if (pattern == kGpt2) return split_gpt2;
  if (pattern == kLlama3) return split_llama3;
  return pattern == kQwen2 ? split_qwen2 : nullptr;
}

}  // namespace lockstep::tokenizer
