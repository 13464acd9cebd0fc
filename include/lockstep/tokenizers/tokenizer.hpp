#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace tokenizer {

struct Workspace;

/// Where in the given text a token comes from: characters (code points, as Python counts) from `begin` to
/// before `end`. Special and padding tokens have {0, 0}.
struct Offsets {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const Offsets&, const Offsets&) = default;
};

/// What a text became. All vectors but `tokens` have one element for each token. Plain values, owned by
/// whoever holds them.
struct Encoding {
  std::vector<std::int64_t> ids;
  /// 0 for the first text's tokens and 1 for the second one's, or what the file's template says.
  std::vector<std::int64_t> type_ids;
  /// 1 for a token, 0 for padding.
  std::vector<std::int64_t> attention_mask;
  /// 1 for a token that the post-processor or padding added.
  std::vector<std::int64_t> special_tokens_mask;
  std::vector<Offsets> offsets;
  /// The number of the token's word in its text, from 0; -1 for special and padding tokens. What a word is,
  /// the pre-tokenizer says; an added token is a word.
  std::vector<std::int32_t> word_ids;
  /// 0 or 1: the text that the token belongs to; -1 for special and padding tokens.
  std::vector<std::int32_t> sequence_ids;
  /// With EncodeOptions::return_tokens the text of each token, else empty: the vocabulary's ("##ing"), and
  /// for an added token what it was found as, with the blanks that it took along: " <mask>" where lstrip is
  /// set.
  std::vector<std::string> tokens;
  /// What truncation cut off, in pieces of the same length with the same special tokens; nested as Python's
  /// are where both texts of a pair were cut.
  std::vector<Encoding> overflowing;

  std::size_t size() const noexcept { return ids.size(); }
  friend bool operator==(const Encoding&, const Encoding&) = default;
};

/// A word that a pre-tokenizer has made.
struct PreToken {
  std::string text;
  Offsets offsets;
  friend bool operator==(const PreToken&, const PreToken&) = default;
};

/// The side of a text that is cut off, or filled up.
enum class Side { left, right };

/// Which text of a pair loses tokens. `longest_first` shares what is left between both.
enum class TruncationStrategy { longest_first, only_first, only_second };

/// Cutting to a length.
struct Truncation {
  /// Tokens at most, special tokens included.
  std::size_t max_length = 512;
  TruncationStrategy strategy = TruncationStrategy::longest_first;
  /// Tokens that neighbouring pieces of the overflow have in common.
  std::size_t stride = 0;
  Side side = Side::right;
};

/// Filling up with a token.
struct Padding {
  /// This length; without one, the longest encoding of the batch.
  std::optional<std::size_t> length = std::nullopt;
  /// The length is rounded up to a multiple of this, unless it is 0.
  std::size_t multiple_of = 0;
  Side side = Side::right;
  std::int64_t id = 0;
  std::int64_t type_id = 0;
  /// Its text in Encoding::tokens.
  std::string token = "[PAD]";
};

/// A text, or a pair of texts. Refers to the caller's bytes.
struct TextInput {
  std::string_view text;
  std::optional<std::string_view> pair = std::nullopt;
};

/// How texts are encoded.
struct EncodeOptions {
  /// Add what the post-processor adds: [CLS], </s> and the like. Such tokens in the text itself are found
  /// anyway.
  bool add_special_tokens = true;
  /// Fill in Encoding::tokens. Training needs ids alone, and a string for each token takes time.
  bool return_tokens = false;
  /// Threads of encode_batch, 0 for one on each processor core. The result does not depend on it.
  int threads = 0;
};

/// What from_vocab() does with text for BERT's WordPiece. Cased models take lowercase = false.
struct BertOptions {
  bool lowercase = true;
  /// Follows `lowercase` unless it is given.
  std::optional<bool> strip_accents = std::nullopt;
  bool handle_chinese_chars = true;
  bool clean_text = true;
};

/// What from_vocab() does with text for GPT-2's byte-level BPE. RoBERTa takes both.
struct ByteLevelOptions {
  /// Treat the first word as one that follows a blank.
  bool add_prefix_space = false;
  /// Leave the blanks of a token out of its offsets.
  bool trim_offsets = false;
};

/// What decode() leaves out.
struct DecodeOptions {
  bool skip_special_tokens = true;
};

}  // namespace tokenizer

/// Turns text into the token ids that a pretrained model was trained on, and back. Reads the files of the
/// Python package `tokenizers`, and gives the ids, masks, offsets and overflow that the package gives.
///
///     auto tokenizer = Tokenizer::from_file("tokenizer.json").with_truncation({{.max_length = 128}});
///     auto encoding = tokenizer.encode("Which model is this?");
///     std::string text = tokenizer.decode(encoding.ids);
///
/// *What it reads.* WordPiece (BERT and its relatives) and byte-level BPE (GPT-2, RoBERTa, Llama 3, Qwen 2):
/// see docs/data.md for the parts. A file that asks for anything else is refused with the name of that part;
/// nothing in a file is passed over.
///
/// *Text* is UTF-8. encode() throws DataError, naming the byte, for text that is not; decode() puts U+FFFD
/// where ids do not add up to characters.
///
/// *Threads.* A tokenizer does not change after it was made: any number of threads may use one at a time.
/// Copies are cheap and share everything. Word caches are kept per thread that is encoding, and are bounded.
///
/// Everything is *Local*.
class Tokenizer {
 public:
  /// Reads a tokenizer.json. The truncation and padding that the file names are in force: see
  /// with_truncation(). Throws DataError, naming the file and the place in it, when it cannot be read, has
  /// more than 256 MiB, is no JSON or lies too deep, contradicts itself, or asks for something that is not
  /// supported.
  static Tokenizer from_file(const std::filesystem::path& path);

  /// The same from the text of such a file; `name` stands for it in errors.
  static Tokenizer from_json(std::string_view json, const std::string& name = "tokenizer.json");

  /// BERT's tokenizer from a vocab.txt (one token a line, its number the line's): the package's
  /// BertWordPieceTokenizer. The vocabulary must have [UNK], [CLS] and [SEP]. Errors as from_file().
  static Tokenizer from_vocab(const std::filesystem::path& vocab_txt,
                              const tokenizer::BertOptions& options = {});

  /// GPT-2's tokenizer from a vocab.json and a merges.txt: the package's ByteLevelBPETokenizer, which adds no
  /// special tokens. Errors as from_file().
  static Tokenizer from_vocab(const std::filesystem::path& vocab_json,
                              const std::filesystem::path& merges_txt,
                              const tokenizer::ByteLevelOptions& options = {});

  Tokenizer(const Tokenizer&) noexcept;
  Tokenizer& operator=(const Tokenizer&) noexcept;
  ~Tokenizer();

  /// A tokenizer that differs in this alone. Without a value it cuts, or fills up, nothing. Throws UsageError
  /// when the stride is not below the length without special tokens.
  Tokenizer with_truncation(std::optional<tokenizer::Truncation> truncation) const;
  Tokenizer with_padding(std::optional<tokenizer::Padding> padding) const;
  const std::optional<tokenizer::Truncation>& truncation() const noexcept;
  const std::optional<tokenizer::Padding>& padding() const noexcept;

  /// Encodes one text. Throws DataError for text that is no UTF-8 or that has more than 2^31 - 1 bytes;
  /// UsageError when truncation cannot do what it was told: only_second without a pair, or a text too short
  /// to lose enough.
  tokenizer::Encoding encode(std::string_view text, const tokenizer::EncodeOptions& options = {}) const;
  tokenizer::Encoding encode(std::string_view text, std::string_view pair,
                             const tokenizer::EncodeOptions& options = {}) const;

  /// Encodes many, by several threads; the results are in the order of the inputs. Errors as encode(): that
  /// of the first input that has one, with its number.
  std::vector<tokenizer::Encoding> encode_batch(const std::vector<tokenizer::TextInput>& inputs,
                                                const tokenizer::EncodeOptions& options = {}) const;
  std::vector<tokenizer::Encoding> encode_batch(const std::vector<std::string>& texts,
                                                const tokenizer::EncodeOptions& options = {}) const;

  /// What the normalizer makes of a text; the package's normalizer.normalize_str. Throws DataError for text
  /// that is no UTF-8.
  std::string normalize(std::string_view text) const;

  /// The words that the pre-tokenizer makes of a text, which is not normalized first, as the model's
  /// vocabulary writes them, and the characters that they come from; the package's
  /// pre_tokenizer.pre_tokenize_str. Throws DataError as normalize().
  std::vector<tokenizer::PreToken> pre_tokenize(std::string_view text) const;

  /// The text of the ids, as the file's decoder puts it together; ids that the vocabulary does not have are
  /// left out.
  std::string decode(const std::vector<std::int64_t>& ids,
                     const tokenizer::DecodeOptions& options = {}) const;

  /// The id of a token as it stands in the vocabulary ("##ing", "\u0120the"), added tokens included.
  std::optional<std::int64_t> token_to_id(std::string_view token) const;
  /// The token of an id, or nothing.
  std::optional<std::string> id_to_token(std::int64_t id) const;
  /// The number of tokens, added ones included.
  std::size_t vocab_size() const noexcept;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts);
  tokenizer::Encoding encode_input(const tokenizer::TextInput& input, const tokenizer::EncodeOptions& options,
                                   tokenizer::Workspace& workspace) const;
  tokenizer::Encoding encode_one(const tokenizer::TextInput& input,
                                 const tokenizer::EncodeOptions& options) const;

  std::shared_ptr<const Parts> parts_;
};

}  // namespace lockstep
