#include "decoder.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "byte_alphabet.hpp"
#include "pattern.hpp"
#include "pre_tokenizer.hpp"
#include "utf8.hpp"

namespace lockstep::tokenizer {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (auto place = text.find(what); place != std::string::npos; place = text.find(what, place + by.size())) {
    text.replace(place, what.size(), by);
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

class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t place = 0; place < tokens.size(); ++place) {
      // Token by token, like the Python package: patterns across two tokens are not cleaned up.
      auto& token = tokens[place];
      if (place > 0 && token.starts_with(prefix_)) {
        token.erase(0, prefix_.size());
      } else if (place > 0) {
        token.insert(0, 1, ' ');
      }
      if (cleanup_) clean_up(token);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const auto& token : tokens) bytes += bytes_of_token(token).value_or(token);
    tokens.assign(1, repaired_utf8(bytes));
  }
};

class PlainDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t place = 1; place < tokens.size(); ++place) tokens[place].insert(0, 1, ' ');
  }
};

/// The byte of a token such as "<0x0A>", or nothing.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned char byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

/// Joins consecutive byte tokens to text; if they are not valid UTF-8, each becomes U+FFFD.
class ByteFallbackDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
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
};

class FuseDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const auto& token : tokens) text += token;
    tokens.assign(1, std::move(text));
  }
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(const Node& node) : pattern_(node["pattern"]), content_(node["content"].text()) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (auto& token : tokens) token = pattern_.replaced(token, content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

/// Strips a character from both ends of each token, up to a number of times.
class StripDecoder final : public Decoder {
 public:
  explicit StripDecoder(const Node& node) : start_(node["start"].number()), stop_(node["stop"].number()) {
    append_utf8(content_, node["content"].character());
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (auto& token : tokens) {
      for (auto left = start_; left > 0 && token.starts_with(content_); --left)
        token.erase(0, content_.size());
      for (auto left = stop_; left > 0 && token.ends_with(content_); --left) {
        token.resize(token.size() - content_.size());
      }
    }
  }

 private:
  std::string content_;
  std::uint32_t start_;
  std::uint32_t stop_;
};

/// Replaces the visible blank by a space, and removes it from the first token if one was prepended to the
/// text.
class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const Node& node)
      : prepended_(read_prepend_scheme(node) != PrependScheme::never) {
    append_utf8(replacement_, node.character("replacement", U'\u2581'));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t place = 0; place < tokens.size(); ++place) {
      replace_all(tokens[place], replacement_, place == 0 && prepended_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool prepended_;
};

/// Replaces the end-of-word suffix by a space, and removes it from the last token.
class SuffixDecoder final : public Decoder {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (std::size_t place = 0; place < tokens.size() && !suffix_.empty(); ++place) {
      replace_all(tokens[place], suffix_, place + 1 == tokens.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class SequenceDecoder final : public Decoder {
 public:
  explicit SequenceDecoder(const Node& node) {
    for (const auto& part : node["decoders"].elements()) parts_.push_back(make_decoder(part));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<const Decoder>> parts_;
};

}  // namespace

std::unique_ptr<const Decoder> make_decoder(const Node& node) {
  const auto& type = node.type();
  if (type == "WordPiece") {
    return std::make_unique<WordPieceDecoder>(node.text("prefix", "##"), node.flag("cleanup", true));
  }
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "BPEDecoder") return std::make_unique<SuffixDecoder>(node.text("suffix", "</w>"));
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(node);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(node);
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(node);
  if (type == "Strip") return std::make_unique<StripDecoder>(node);
  node.fail(
      "the decoder '" + type +
      "' is not supported (BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip "
      "and WordPiece are)");
}

std::unique_ptr<const Decoder> make_plain_decoder() { return std::make_unique<PlainDecoder>(); }

}  // namespace lockstep::tokenizer
