#pragma once

#include <array>
#include <optional>
#include <vector>

#include "tokenizers/encoding.hpp"
#include "tokenizers/json_file.hpp"

namespace lockstep::tokenizer {

/// Adds special tokens to texts, and trims blanks from offsets.
class PostProcessor {
 public:
  /// Joins a pair without adding tokens.
  PostProcessor() = default;
  /// The post-processor of a file's field "post_processor". Throws DataError if it is not supported, or if a
  /// template uses a token that it does not define.
  explicit PostProcessor(const Node& node);

  /// The number of special tokens that it adds.
  std::size_t added(bool is_pair) const noexcept;
  /// Whether drafts need the blanks of their tokens.
  bool trims() const noexcept { return !trims_.empty(); }

  /// Joins the texts; consumes the drafts.
  Encoding process(Draft& text, Draft* pair, bool add_special_tokens, bool return_tokens) const;

 private:
  /// A piece of a template: a text, or tokens.
  struct Piece {
    /// 0 or 1 for a text, -1 for tokens.
    int sequence = -1;
    std::vector<SpecialToken> tokens;
    /// Type of the tokens; if not set, a text keeps its types.
    std::optional<std::int64_t> type_id;
    /// Whether the type also applies to the text's overflow.
    bool overflow_type = false;
  };
  using Template = std::vector<Piece>;
  /// For one text and for a pair.
  using Templates = std::array<Template, 2>;

  static Piece sequence(int number) { return {.sequence = number, .tokens = {}, .type_id = {}}; }
  static Piece special(const SpecialToken& token, std::int64_t type_id) {
    return {.tokens = {token}, .type_id = type_id};
  }

  void add(const Node& node);
  void add_trim(const Node& node);
  void add_roberta(const Node& node);
  void add_template(const Node& node);
  void claim(const Node& node);
  static Piece read_piece(const Node& piece, const Node& tokens, int texts);

  /// One element per trimming processor: whether the pre-tokenizer prepended a space.
  std::vector<bool> trims_;
  bool has_template_ = false;
  /// With special tokens, and without them.
  Templates full_ = {Template{sequence(0)}, Template{sequence(0), sequence(1)}};
  Templates bare_ = full_;
};

}  // namespace lockstep::tokenizer
