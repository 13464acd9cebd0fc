#include "tokenizers/decoder.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "tokenizers/byte_alphabet.hpp"
#include "tokenizers/pattern.hpp"
#include "tokenizers/pre_tokenizer.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (auto position = text.find(what); position != std::string::npos;
       position = text.find(what, position + by.size())) {
    text.replace(position, what.size(), by);
  }
}

/// Removes the spaces that tokenization put before punctuation and English contractions.
void clean_up(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kChanges = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [what, by] : kChanges) replace_all(text, what, by);
}

/// Of adjacent equal tokens one is kept; padding is removed, and the delimiter becomes a space.
Decoder ctc(const Node& node) {
  return [padding = node.text("pad_token", "<pad>"), delimiter = node.text("word_delimiter_token", "|"),
          cleanup = node.flag("cleanup", true)](std::vector<std::string>& tokens) {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (auto& token : tokens) {
      if (!padding.empty()) replace_all(token, padding, "");
      if (!cleanup) continue;
      clean_up(token);
      if (!delimiter.empty()) replace_all(token, delimiter, " ");
    }
    std::erase(tokens, "");
  };
}

Decoder word_piece(const std::string& prefix, bool cleanup) {
  return [=](std::vector<std::string>& tokens) {
    for (std::size_t position = 0; position < tokens.size(); ++position) {
      // Token by token, like the Python package: patterns across two tokens are not cleaned up.
      auto& token = tokens[position];
      if (position > 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (position > 0) {
        token.insert(0, 1, ' ');
      }
      if (cleanup) clean_up(token);
    }
  };
}

void byte_level(std::vector<std::string>& tokens) {
  std::string bytes;
  for (const auto& token : tokens) bytes += bytes_of_token(token).value_or(token);
  tokens.assign(1, repaired_utf8(bytes));
}

/// The byte of a token such as "<0x0A>", or nothing.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

/// Joins consecutive byte tokens to text; if they are not valid UTF-8, each becomes U+FFFD.
void byte_fallback(std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string bytes;
  const auto finish = [&] {
    if (check_utf8(bytes).valid == bytes.size()) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (auto& token : tokens) {
    if (const auto byte = byte_of_token(token)) {
      bytes += *byte;
      continue;
    }
    finish();
    result.push_back(std::move(token));
  }
  finish();
  tokens = std::move(result);
}

void fuse(std::vector<std::string>& tokens) {
  std::string text;
  for (const auto& token : tokens) text += token;
  tokens.assign(1, std::move(text));
}

Decoder replace(const Node& node) {
  return [pattern = Pattern(node["pattern"]), content = node["content"].text()](auto& tokens) {
    for (auto& token : tokens) token = pattern.replaced(token, content);
  };
}

/// Strips a character from both ends of each token, up to a number of times.
Decoder strip(const Node& node) {
  std::string content;
  append_utf8(content, node["content"].character());
  return [content, start = node["start"].number(), stop = node["stop"].number()](auto& tokens) {
    for (auto& token : tokens) {
      for (auto left = start; left > 0 && token.starts_with(content); --left) token.erase(0, content.size());
      for (auto left = stop; left > 0 && token.ends_with(content); --left)
        token.resize(token.size() - content.size());
    }
  };
}

/// Replaces the visible blank by a space, and removes it from the first token if one was prepended to the
/// text.
Decoder metaspace(const Node& node) {
  std::string replacement;
  append_utf8(replacement, node.character("replacement", U'\u2581'));
  return [replacement, prepended = read_prepend_scheme(node) != PrependScheme::never](auto& tokens) {
    for (std::size_t position = 0; position < tokens.size(); ++position)
      replace_all(tokens[position], replacement, position == 0 && prepended ? "" : " ");
  };
}

/// Replaces the end-of-word suffix by a space, and removes it from the last token.
Decoder suffix(const std::string& text) {
  return [=](std::vector<std::string>& tokens) {
    for (std::size_t position = 0; position < tokens.size() && !text.empty(); ++position)
      replace_all(tokens[position], text, position + 1 == tokens.size() ? "" : " ");
  };
}

Decoder sequence(const Node& node) {
  std::vector<Decoder> parts;
  for (const auto& part : node["decoders"].elements()) parts.push_back(make_decoder(part));
  return [parts](auto& tokens) {
    for (const auto& part : parts) part(tokens);
  };
}

}  // namespace

void clean_up_text(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kChanges = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [what, by] : kChanges) replace_all(text, what, by);
}

void join_by_spaces(std::vector<std::string>& tokens) {
  for (std::size_t position = 1; position < tokens.size(); ++position) tokens[position].insert(0, 1, ' ');
}

Decoder make_decoder(const Node& node) {
  const auto& type = node.type();
  if (type == "WordPiece") return word_piece(node.text("prefix", "##"), node.flag("cleanup", true));
  if (type == "ByteLevel") return byte_level;
  if (type == "BPEDecoder") return suffix(node.text("suffix", "</w>"));
  if (type == "ByteFallback") return byte_fallback;
  if (type == "CTC") return ctc(node);
  if (type == "Fuse") return fuse;
  if (type == "Metaspace") return metaspace(node);
  if (type == "Replace") return replace(node);
  if (type == "Sequence") return sequence(node);
  if (type == "Strip") return strip(node);
  node.fail("the decoder '" + type +
            "' is not supported (BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, "
            "Sequence, Strip "
            "and WordPiece are)");
}

}  // namespace lockstep::tokenizer
