#include "tokenizers/post_processor.hpp"

#include <algorithm>

namespace lockstep::tokenizer {
namespace {

/// Excludes the blanks of each token from its offsets. A single blank before the first token is kept if it
/// was added, because it has no character in the text.
void trim(Draft& draft, bool add_prefix_space) {
  for (std::size_t position = 0; position < draft.size(); ++position) {
    auto& offsets = draft.encoding.offsets[position];
    std::uint32_t leading = draft.blanks[position].leading;
    const std::uint32_t trailing = draft.blanks[position].trailing;
    const bool is_first = position == 0 || offsets.begin == 0;
    if (leading == 1 && is_first && add_prefix_space) leading = 0;
    offsets.begin = leading > 0 ? std::min(offsets.begin + leading, offsets.end) : offsets.begin;
    if (trailing > 0 && offsets.end >= trailing) {
      offsets.end = std::max(offsets.end - trailing, offsets.begin);
    }
  }
}

Encoding finished(Draft& draft, const std::vector<bool>& trims) {
  for (const bool add_prefix_space : trims) trim(draft, add_prefix_space);
  auto encoding = std::move(draft.encoding);
  for (auto& part : draft.overflowing) encoding.overflowing.push_back(finished(part, trims));
  return encoding;
}

void set_types(Encoding& encoding, std::int64_t type_id, bool overflow_too) {
  std::fill(encoding.type_ids.begin(), encoding.type_ids.end(), type_id);
  if (!overflow_too) return;
  for (auto& part : encoding.overflowing) set_types(part, type_id, true);
}

/// A special token as a list of its text and its id.
SpecialToken read_special_token(const Node& node) {
  if (node.size() != 2) node.fail("a token and its id are needed");
  return {node.element(0).text(), node.element(1).number()};
}

}  // namespace

PostProcessor::PostProcessor(const Node& node) {
  if (node.type() != "Sequence") {
    add(node);
  } else {
    for (const auto& part : node["processors"].elements()) add(part);
  }
}

void PostProcessor::add(const Node& node) {
  const auto& type = node.type();
  if (type == "ByteLevel") return add_trim(node);
  if (type == "TemplateProcessing") return add_template(node);
  if (type == "RobertaProcessing") return add_roberta(node);
  if (type != "BertProcessing") {
    node.fail("the post-processor '" + type +
              "' is not supported (BertProcessing, RobertaProcessing, TemplateProcessing, ByteLevel and "
              "Sequence are)");
  }
  claim(node);
  const auto cls = read_special_token(node["cls"]);
  const auto sep = read_special_token(node["sep"]);
  full_[0] = {special(cls, 0), sequence(0), special(sep, 0)};
  full_[1] = {special(cls, 0), sequence(0), special(sep, 0), sequence(1), special(sep, 1)};
}

/// After special tokens are added, trimming would treat them as the first tokens: no file does that.
void PostProcessor::add_trim(const Node& node) {
  if (!node.flag("trim_offsets", true)) return;
  if (has_template_) node.fail("a post-processor that trims offsets after another one is not supported");
  trims_.push_back(node.flag("add_prefix_space", true));
}

void PostProcessor::claim(const Node& node) {
  if (has_template_) node.fail("a second post-processor that adds special tokens is not supported");
  has_template_ = true;
}

/// All tokens are of type 0, also those of a pair's second text.
void PostProcessor::add_roberta(const Node& node) {
  add_trim(node);
  claim(node);
  const auto cls = special(read_special_token(node["cls"]), 0);
  const auto sep = special(read_special_token(node["sep"]), 0);
  auto text = sequence(0);
  auto pair = sequence(1);
  text.type_id = pair.type_id = 0;
  bare_ = {Template{text}, Template{text, pair}};
  text.overflow_type = pair.overflow_type = true;
  full_ = {Template{cls, text, sep}, Template{cls, text, sep, sep, pair, sep}};
}

void PostProcessor::add_template(const Node& node) {
  claim(node);
  const auto tokens = node["special_tokens"];
  for (int texts = 1; texts <= 2; ++texts) {
    auto& pieces = full_[static_cast<std::size_t>(texts) - 1];
    pieces.clear();
    for (const auto& piece : node[texts == 1 ? "single" : "pair"].elements()) {
      pieces.push_back(read_piece(piece, tokens, texts));
    }
  }
  bare_ = full_;
  for (auto& pieces : bare_) {
    std::erase_if(pieces, [](const Piece& piece) { return piece.sequence < 0; });
  }
}

PostProcessor::Piece PostProcessor::read_piece(const Node& piece, const Node& tokens, int texts) {
  if (const auto text = piece.find("Sequence")) {
    const auto& id = (*text)["id"].text();
    if (id != "A" && !(id == "B" && texts == 2)) text->fail("there is no text '" + id + "' here");
    auto result = sequence(id == "A" ? 0 : 1);
    result.type_id = (*text)["type_id"].number();
    return result;
  }
  const auto token = piece["SpecialToken"];
  Piece result;
  result.type_id = token["type_id"].number();
  const auto special = tokens[token["id"].text()];
  const auto ids = special["ids"];
  const auto names = special["tokens"];
  if (ids.size() != names.size()) special.fail("a special token needs as many tokens as ids");
  for (std::size_t index = 0; index < ids.size(); ++index) {
    result.tokens.push_back({names.element(index).text(), ids.element(index).number()});
  }
  return result;
}

std::size_t PostProcessor::added(bool is_pair) const noexcept {
  std::size_t count = 0;
  for (const auto& piece : full_[is_pair ? 1 : 0]) count += piece.tokens.size();
  return count;
}

Encoding PostProcessor::process(Draft& text, Draft* pair, bool add_special_tokens, bool return_tokens) const {
  std::array<Encoding, 2> texts{finished(text, trims_), {}};
  if (pair != nullptr) texts[1] = finished(*pair, trims_);
  Encoding result;
  for (const auto& piece : (add_special_tokens ? full_ : bare_)[pair != nullptr ? 1 : 0]) {
    if (piece.sequence >= 0) {
      auto& part = texts[static_cast<std::size_t>(piece.sequence)];
      if (piece.type_id) set_types(part, *piece.type_id, piece.overflow_type);
      append(result, part);
      continue;
    }
    Encoding tokens;
    for (const auto& token : piece.tokens) append_special(tokens, token, *piece.type_id, return_tokens);
    append(result, tokens);
  }
  return result;
}

}  // namespace lockstep::tokenizer
