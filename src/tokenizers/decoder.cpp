#include "decoder.hpp"

#include <array>
#include <utility>

#include "byte_alphabet.hpp"
#include "utf8.hpp"

namespace lockstep::tokenizer {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (auto place = text.find(what); place != std::string::npos; place = text.find(what, place + by.size())) {
    text.replace(place, what.size(), by);
  }
}

/// Takes out the blanks that splitting into tokens put before punctuation and English contractions.
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

  std::string decode(const std::vector<std::string_view>& tokens) const override {
    std::string text;
    bool is_first = true;
    for (auto token : tokens) {
      // Token by token, as the Python package does: what lies across two tokens is not cleaned up.
      const bool continues = !is_first && token.starts_with(prefix_);
      if (continues) token.remove_prefix(prefix_.size());
      std::string part = (is_first || continues ? "" : " ") + std::string(token);
      if (cleanup_) clean_up(part);
      text += part;
      is_first = false;
    }
    return text;
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class ByteLevelDecoder final : public Decoder {
 public:
  std::string decode(const std::vector<std::string_view>& tokens) const override {
    std::string bytes;
    for (const auto token : tokens) bytes += bytes_of_token(token).value_or(std::string(token));
    return repaired_utf8(bytes);
  }
};

class PlainDecoder final : public Decoder {
 public:
  std::string decode(const std::vector<std::string_view>& tokens) const override {
    std::string text;
    for (std::size_t place = 0; place < tokens.size(); ++place) {
      if (place > 0) text += ' ';
      text += tokens[place];
    }
    return text;
  }
};

}  // namespace

std::unique_ptr<const Decoder> make_decoder(const Node& node) {
  const auto& type = node.type();
  if (type == "WordPiece") {
    return make_word_piece_decoder(node.text("prefix", "##"), node.flag("cleanup", true));
  }
  if (type == "ByteLevel") return make_byte_level_decoder();
  node.fail("the decoder '" + type + "' is not supported (WordPiece and ByteLevel are)");
}

std::unique_ptr<const Decoder> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
}

std::unique_ptr<const Decoder> make_byte_level_decoder() { return std::make_unique<ByteLevelDecoder>(); }

std::unique_ptr<const Decoder> make_plain_decoder() { return std::make_unique<PlainDecoder>(); }

}  // namespace lockstep::tokenizer
