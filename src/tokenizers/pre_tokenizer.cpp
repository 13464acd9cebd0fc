#include "tokenizers/pre_tokenizer.hpp"

#include "tokenizers/byte_alphabet.hpp"
#include "tokenizers/pattern_splitters.hpp"

#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {

NormalizedString& SplitText::begin_rewriting() {
  current_ = 1 - current_;
  rewritten_[current_].clear();
  return rewritten_[current_];
}

namespace {

PreTokenizerStep step_of(Splitter splitter) {
  return [splitter](SplitText& split) {
    auto& words = split.spare;
    words.clear();
    for (const auto& word : split.words) {
      const auto first = words.size();
      splitter(split.text.text.substr(word.begin, word.end - word.begin), words);
      for (auto index = first; index < words.size(); ++index) {
        words[index].begin += word.begin;
        words[index].end += word.begin;
      }
    }
    split.words.swap(words);
  };
}

/// What a Split does with the matches.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const Node& node) {
  const auto& name = node.text();
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  node.fail("the behavior '" + name +
            "' is not supported (Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous are)");
}

/// Splits words at the matches of a pattern, or, if inverted, at the text between them.
class PatternSplit {
 public:
  PatternSplit(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void operator()(SplitText& split) const {
    auto& words = split.spare;
    words.clear();
    for (const auto& word : split.words) {
      pattern_.find_all(split.text.text.substr(word.begin, word.end - word.begin), split.matches);
      Pieces pieces{*this, words, words.size(), word.begin};
      std::uint32_t done = 0;
      for (const auto& match : split.matches) {
        if (done < match.begin) pieces.add({done, match.begin}, false);
        pieces.add(match, true);
        done = match.end;
      }
      if (done < word.end - word.begin) pieces.add({done, word.end - word.begin}, false);
    }
    std::erase_if(words, [](const Word& word) { return word.begin == word.end; });
    split.words.swap(words);
  }

 private:
  /// Combines the pieces of one word, matches and the text between them, into words.
  struct Pieces {
    const PatternSplit& split;
    Words& words;
    std::size_t first;
    std::uint32_t shift;
    bool previous = false;

    void add(ByteRange piece, bool found) {
      const bool match = found != split.invert_;
      const bool joins = words.size() > first && split.joins(match, previous);
      previous = match;
      if (match && split.behavior_ == Behavior::removed) return;
      if (joins) {
        words.back().end = piece.end + shift;
      } else {
        words.push_back({piece.begin + shift, piece.end + shift});
      }
    }
  };

  /// Whether a piece is appended to the previous one.
  bool joins(bool match, bool previous) const {
    switch (behavior_) {
      case Behavior::merged_with_previous:
        return match && !previous;
      case Behavior::merged_with_next:
        return !match && previous;
      case Behavior::contiguous:
        return match == previous;
      default:
        return false;
    }
  }

  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

/// ByteLevel's space before each word that does not begin with one.
void prefix_spaces(SplitText& split) {
  auto& result = split.begin_rewriting();
  for (auto& word : split.words) {
    const auto part = split.text.part(word.begin, word.end);
    word.begin = static_cast<std::uint32_t>(result.text.size());
    if (part.text.front() != ' ') result.append(U' ', part.offsets(0, 1));
    result.append(part);
    word.end = static_cast<std::uint32_t>(result.text.size());
  }
  split.take(result);
}

/// Writes the bytes of words as visible characters.
void write_bytes(SplitText& split) {
  auto& result = split.begin_rewriting();
  for (auto& word : split.words) {
    const auto part = split.text.part(word.begin, word.end);
    word.begin = static_cast<std::uint32_t>(result.text.size());
    for (std::size_t position = 0; position < part.text.size(); ++position) {
      result.append(byte_characters()[static_cast<unsigned char>(part.text[position])],
                    part.offsets(position, position + 1));
    }
    word.end = static_cast<std::uint32_t>(result.text.size());
  }
  split.take(result);
}

/// Cuts words into pieces of a number of characters.
class FixedLength {
 public:
  explicit FixedLength(std::uint32_t length) : length_(length) {}

  void operator()(SplitText& split) const {
    auto& words = split.spare;
    words.clear();
    for (const auto& word : split.words) {
      auto begin = word.begin;
      std::uint32_t count = 0;
      for (auto position = word.begin; position < word.end;) {
        position += static_cast<std::uint32_t>(sequence_length(split.text.text[position]));
        if (++count % length_ > 0 && position < word.end) continue;
        words.push_back({begin, position});
        begin = position;
      }
    }
    split.words.swap(words);
  }

 private:
  std::uint32_t length_;
};

FixedLength fixed_length(const Node& node) {
  const auto length = node.number("length", 5);
  if (length == 0) node.fail("the length of FixedLength is 0");
  return FixedLength(length);
}

/// SentencePiece's words: spaces become a visible character, which begins a word.
class Metaspace {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool splits)
      : replacement_(replacement), scheme_(scheme), splits_(splits) {
    append_utf8(bytes_, replacement);
  }

  void operator()(SplitText& split) const {
    auto& result = split.begin_rewriting();
    split.spare.clear();
    for (const auto& word : split.words) {
      const auto part = split.text.part(word.begin, word.end);
      auto begin = static_cast<std::uint32_t>(result.text.size());
      if (prepends(part)) result.append(replacement_, part.offsets(0, 1));
      for (std::size_t position = 0; position < part.text.size();) {
        const auto next = next_start(part.text, position);
        if (position < next) result.append(part.part(position, next));
        if (next == part.text.size()) break;
        const auto here = static_cast<std::uint32_t>(result.text.size());
        if (splits_ && here > begin) {
          split.spare.push_back({begin, here});
          begin = here;
        }
        position = next + (part.text[next] == ' ' ? 1 : bytes_.size());
        if (part.text[next] == ' ') {
          result.append(replacement_, part.offsets(next, position));
        } else {
          result.append(part.part(next, position));
        }
      }
      split.spare.push_back({begin, static_cast<std::uint32_t>(result.text.size())});
    }
    split.words.swap(split.spare);
    split.take(result);
  }

 private:
  /// The next space or replacement at or after `position`, or the end.
  std::size_t next_start(std::string_view text, std::size_t position) const {
    for (; position < text.size(); ++position) {
      if (text[position] == ' ' || (text[position] == bytes_[0] && text.substr(position).starts_with(bytes_)))
        break;
    }
    return position;
  }

  bool prepends(const Stretch& part) const {
    if (scheme_ == PrependScheme::never) return false;
    if (scheme_ == PrependScheme::first && part.offsets(0, 1).begin != 0) return false;
    return part.text.front() != ' ' && !part.text.starts_with(bytes_);
  }

  char32_t replacement_;
  std::string bytes_;
  PrependScheme scheme_;
  bool splits_;
};

/// Patterns with a dedicated splitter match every character, so that isolated matches are the same as
/// removing everything but the matches.
Splitter known_splitter(const Node& pattern, Behavior behavior, bool invert) {
  const auto expression = pattern.find("Regex");
  const bool whole = behavior == (invert ? Behavior::removed : Behavior::isolated);
  return expression && whole ? find_pattern(expression->text()) : nullptr;
}

}  // namespace

PrependScheme read_prepend_scheme(const Node& node) {
  const auto scheme = node.text("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return PrependScheme::always;
  if (scheme == "first") return PrependScheme::first;
  if (scheme == "never") return PrependScheme::never;
  node.fail("the prepend_scheme '" + scheme + "' is not supported (always, first and never are)");
}

PreTokenizer::PreTokenizer(const Node& node) { add(node); }

void PreTokenizer::add(const Node& node) {
  const auto& type = node.type();
  if (byte_level_ && type != "Sequence") show_bytes();
  const auto add_pattern = [&](Pattern pattern, Behavior behavior) {
    steps_.emplace_back(PatternSplit(std::move(pattern), behavior, false));
  };
  if (type == "Sequence") {
    for (const auto& part : node["pretokenizers"].elements()) add(part);
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(step_of(split_bert));
  } else if (type == "Whitespace") {
    steps_.push_back(step_of(split_words));
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(step_of(split_spaces));
  } else if (type == "Split") {
    add_split(node);
  } else if (type == "CharDelimiterSplit") {
    std::string delimiter;
    append_utf8(delimiter, node["delimiter"].character());
    add_pattern(Pattern(std::move(delimiter)), Behavior::removed);
  } else if (type == "FixedLength") {
    steps_.emplace_back(fixed_length(node));
  } else if (type == "UnicodeScripts") {
    steps_.push_back(step_of(split_scripts));
  } else if (type == "Metaspace") {
    steps_.emplace_back(Metaspace(node.character("replacement", U'\u2581'), read_prepend_scheme(node),
                                  node.flag("split", true)));
  } else if (type == "Digits") {
    const bool single = node.flag("individual_digits", false);
    add_pattern(Pattern(kIsDigit), single ? Behavior::isolated : Behavior::contiguous);
  } else if (type == "Punctuation") {
    const auto behavior = node.find("behavior");
    add_pattern(Pattern(kIsBertPunctuation), behavior ? read_behavior(*behavior) : Behavior::isolated);
  } else if (type == "ByteLevel") {
    byte_level_ = true;
    if (node.flag("add_prefix_space", true)) steps_.emplace_back(prefix_spaces);
    if (node.flag("use_regex", true)) steps_.push_back(step_of(split_gpt2));
  } else {
    node.fail("the pre-tokenizer '" + type +
              "' is not supported (BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, "
              "Metaspace, "
              "Punctuation, Sequence, Split, UnicodeScripts, Whitespace and WhitespaceSplit are)");
  }
}

void PreTokenizer::show_bytes() {
  if (byte_level_) steps_.emplace_back(write_bytes);
  byte_level_ = false;
}

void PreTokenizer::add_split(const Node& node) {
  const auto pattern = node["pattern"];
  const auto behavior = read_behavior(node["behavior"]);
  const bool invert = node.flag("invert", false);
  if (const auto splitter = known_splitter(pattern, behavior, invert); splitter != nullptr) {
    steps_.push_back(step_of(splitter));
  } else {
    steps_.emplace_back(PatternSplit(Pattern(pattern), behavior, invert));
  }
}

void PreTokenizer::split(const Stretch& text, SplitText& split) const {
  split.text = text;
  split.words.assign(1, {0, static_cast<std::uint32_t>(text.text.size())});
  for (const auto& step : steps_) step(split);
}

Stretch numbered(std::string_view text, std::size_t characters, std::vector<std::uint32_t>& begins) {
  if (characters == text.size()) return {.text = text};
  begins.resize(text.size());
  std::uint32_t number = 0;
  for (std::size_t position = 0; position < text.size(); ++position) {
    if (position > 0 && !is_tail(text[position])) ++number;
    begins[position] = number;
  }
  return {.text = text, .begins = begins.data()};
}

std::string written(std::string_view word, bool byte_level) {
  if (!byte_level) return std::string(word);
  std::string characters;
  for (const char byte : word) append_utf8(characters, byte_characters()[static_cast<unsigned char>(byte)]);
  return characters;
}

}  // namespace lockstep::tokenizer
