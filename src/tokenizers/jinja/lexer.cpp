#include "tokenizers/jinja/lexer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <system_error>

#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/string_literal.hpp"
#include "tokenizers/unicode.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

constexpr std::array<std::string_view, 26> kSigns = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                     "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                     ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

/// With \n for every end of a line, and without the last one.
std::string normalize(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_name_character(char32_t code) {
  if (code < 0x80)
    return (code >= U'0' && code <= U'9') || (code >= U'A' && code <= U'Z') ||
           (code >= U'a' && code <= U'z') || code == U'_';
  return tokenizer::Unicode::get().is(code, tokenizer::kIsWord);
}

bool is_decimal(char byte) { return byte >= '0' && byte <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (position_ < rest_.size()) read_data();
    add(TokenType::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& message) const { throw SyntaxFailure{message, line_}; }

  void add(TokenType type, std::string_view text = {}) {
    tokens_.push_back({.type = type, .line = line_, .text = std::string(text)});
  }
  bool sees(std::string_view text) const { return rest_.substr(position_, text.size()) == text; }
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(rest_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         rest_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    position_ = to;
  }
  std::size_t after_space(std::size_t position) const {
    return rest_.size() - strip_space(rest_.substr(position), Ends::left).size();
  }

  /// The data up to the next tag, and the tag.
  void read_data() {
    auto tag = position_;
    for (;; ++tag) {
      tag = rest_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= rest_.size()) {
        add(TokenType::data, rest_.substr(position_));
        return advance(rest_.size());
      }
      if (rest_[tag + 1] == '{' || rest_[tag + 1] == '%' || rest_[tag + 1] == '#') break;
    }
    const auto data = rest_.substr(position_, tag - position_);
    const char kind = rest_[tag + 1];
    auto begin = tag + 2;
    const char control =
        begin < rest_.size() && (rest_[begin] == '-' || rest_[begin] == '+') ? rest_[begin] : ' ';
    if (control != ' ') ++begin;
    add_data(data, control, kind != '{');
    advance(begin);
    line_starting_ = false;
    if (kind == '#') return skip_comment();
    if (kind == '{') return read_tag(TokenType::variable_begin, TokenType::variable_end);
    if (const auto raw = end_of_raw_begin(); raw != 0) return read_raw(raw);
    read_tag(TokenType::block_begin, TokenType::block_end);
  }

  /// Data before a tag, without the white space that the tag takes away.
  void add_data(std::string_view data, char control, bool strips_line) {
    if (control == '-') {
      data = strip_space(data, Ends::right);
    } else if (control != '+' && strips_line) {
      const auto last = data.rfind('\n');
      const auto begin = last == std::string_view::npos ? 0 : last + 1;
      if ((begin > 0 || line_starting_) && strip_space(data.substr(begin)).empty())
        data = data.substr(0, begin);
    }
    if (!data.empty()) add(TokenType::data, data);
  }

  /// Behind the end of a block or a comment, which starts at `position` with its control character, if any.
  std::size_t after_end(std::size_t position) const {
    const char control = rest_[position];
    if (control == '-') return after_space(position + 3);
    if (control == '+') return position + 3;
    position += 2;
    return position < rest_.size() && rest_[position] == '\n' ? position + 1 : position;
  }

  void leave_tag(std::size_t end) {
    advance(end);
    line_starting_ = rest_[end - 1] == '\n';
  }

  void skip_comment() {
    auto end = rest_.find("#}", position_);
    if (end == std::string_view::npos) fail_here("a comment is not closed: '#}' is missing");
    if (end > position_ && (rest_[end - 1] == '-' || rest_[end - 1] == '+')) --end;
    leave_tag(after_end(end));
  }

  /// Behind "raw %}", or 0 if the block is another one.
  std::size_t end_of_raw_begin() const {
    const auto word = after_space(position_);
    if (rest_.substr(word, 3) != "raw") return 0;
    const auto end = after_space(word + 3);
    if (rest_.substr(end, 3) == "-%}") return after_space(end + 3);
    return rest_.substr(end, 2) == "%}" ? end + 2 : 0;
  }

  void read_raw(std::size_t begin) {
    leave_tag(begin);
    for (auto tag = rest_.find("{%", position_); tag != std::string_view::npos;
         tag = rest_.find("{%", tag + 1)) {
      auto word = tag + 2;
      const char control =
          word < rest_.size() && (rest_[word] == '-' || rest_[word] == '+') ? rest_[word] : ' ';
      if (control != ' ') ++word;
      word = after_space(word);
      if (rest_.substr(word, 6) != "endraw") continue;
      const auto end = after_space(word + 6);
      if (rest_.substr(end, 2) != "%}" && rest_.substr(end, 3) != "-%}" && rest_.substr(end, 3) != "+%}")
        continue;
      add_data(rest_.substr(position_, tag - position_), control, true);
      return leave_tag(after_end(end));
    }
    fail_here("a raw block is not closed: '{% endraw %}' is missing");
  }

  void read_tag(TokenType begin, TokenType end) {
    add(begin);
    const bool is_block = begin == TokenType::block_begin;
    const std::string_view close = is_block ? "%}" : "}}";
    open_.clear();
    while (position_ < rest_.size()) {
      if (open_.empty()) {
        if (sees(close) || (sees("-") && rest_.substr(position_ + 1, 2) == close) ||
            (is_block && sees("+") && rest_.substr(position_ + 1, 2) == close)) {
          add(end);
          if (is_block) return leave_tag(after_end(position_));
          return leave_tag(sees("-") ? after_space(position_ + 3) : position_ + 2);
        }
      }
      read_token();
    }
    fail_here(fmt::format("a tag is not closed: '{}' is missing", close));
  }

  void read_token() {
    if (const auto behind = after_space(position_); behind != position_) return advance(behind);
    const char first = rest_[position_];
    if (is_decimal(first) && read_number()) return;
    if (first == '\'' || first == '"') return read_string(first);
    auto end = position_;
    for (auto next = end; end < rest_.size(); end = next) {
      if (!is_name_character(tokenizer::next_character(rest_, next))) break;
    }
    if (end != position_) {
      if (is_decimal(first)) fail_here("a name begins with a digit");
      add(TokenType::name, rest_.substr(position_, end - position_));
      return advance(end);
    }
    for (const auto sign : kSigns) {
      if (sees(sign)) return read_sign(sign);
    }
    auto next = position_;
    tokenizer::next_character(rest_, next);
    fail_here(fmt::format("unexpected character '{}'", rest_.substr(position_, next - position_)));
  }

  void read_sign(std::string_view sign) {
    const auto opens = std::string_view("([{").find(sign);
    const auto closes = std::string_view(")]}").find(sign);
    if (opens != std::string_view::npos) {
      open_ += ")]}"[opens];
    } else if (closes != std::string_view::npos) {
      if (open_.empty()) fail_here(fmt::format("unexpected '{}'", sign));
      if (open_.back() != sign[0])
        fail_here(fmt::format("unexpected '{}', expected '{}'", sign, open_.back()));
      open_.pop_back();
    }
    add(TokenType::sign, sign);
    advance(position_ + sign.size());
  }

  /// Digits with single underscores between them.
  std::size_t after_digits(std::size_t position, int base = 10) const {
    const auto is_one = [&](std::size_t at) {
      if (at >= rest_.size()) return false;
      const char byte = rest_[at];
      if (base == 16 && ((byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F'))) return true;
      return byte >= '0' && byte < '0' + std::min(base, 10);
    };
    while (is_one(position) || (position < rest_.size() && rest_[position] == '_' && is_one(position + 1)))
      ++position;
    return position;
  }

  bool read_number() {
    if (position_ == 0 || rest_[position_ - 1] != '.') {
      const auto whole = after_digits(position_);
      auto end = whole;
      if (end < rest_.size() && rest_[end] == '.' && end + 1 < rest_.size() && is_decimal(rest_[end + 1]))
        end = after_digits(end + 1);
      auto power = end;
      if (power < rest_.size() && (rest_[power] == 'e' || rest_[power] == 'E')) {
        ++power;
        if (power < rest_.size() && (rest_[power] == '+' || rest_[power] == '-')) ++power;
        if (power < rest_.size() && is_decimal(rest_[power])) end = after_digits(power);
      }
      if (end != whole) return add_number(end, 0);
    }
    int base = 10;
    if (rest_[position_] == '0' && position_ + 1 < rest_.size()) {
      const char mark = rest_[position_ + 1];
      base = mark == 'b' || mark == 'B'   ? 2
             : mark == 'o' || mark == 'O' ? 8
             : mark == 'x' || mark == 'X' ? 16
                                          : 10;
      if (base != 10 && after_digits(position_ + 2, base) == position_ + 2) base = 10;
      if (base != 10) return add_number(after_digits(position_ + 2, base), base);
      auto zeros = position_;
      while (zeros < rest_.size() &&
             (rest_[zeros] == '0' || (rest_[zeros] == '_' && rest_.substr(zeros + 1, 1) == "0")))
        ++zeros;
      return add_number(zeros, 10);
    }
    return add_number(after_digits(position_), 10);
  }

  /// A number up to `end`; base 0 is for one with a point or an exponent.
  bool add_number(std::size_t end, int base) {
    std::string text(rest_.substr(position_, end - position_));
    std::erase(text, '_');
    Value number;
    if (base == 0) {
      number = Value::of(std::strtod(text.c_str(), nullptr));
    } else {
      const std::size_t skipped = base == 10 ? 0 : 2;
      std::int64_t parsed = 0;
      const auto result = std::from_chars(text.data() + skipped, text.data() + text.size(), parsed, base);
      if (result.ec != std::errc())
        fail_here(fmt::format("the integer {} is beyond 64 bits", text.substr(0, 40)));
      number = Value::of(parsed);
    }
    add(TokenType::number, text);
    tokens_.back().number = number;
    advance(end);
    return true;
  }

  void read_string(char quote) {
    auto end = position_ + 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail_here("a string is not closed");
    const auto read = read_string_literal(rest_.substr(position_ + 1, end - position_ - 1));
    if (!read.error.empty()) fail_here(read.error);
    add(TokenType::string, read.text);
    advance(end + 1);
  }

  std::string source_;
  std::string_view rest_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  /// The closing signs of open brackets.
  std::string open_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace lockstep::jinja
