#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace tokenizer {

struct Workspace;

/// The source of a token in the given text: characters (code points, as in Python) from `begin` to before
/// `end`. Special and padding tokens have {0, 0}.
struct Offsets {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  friend bool operator==(const Offsets&, const Offsets&) = default;
};

/// The result of encoding a text. All vectors except `tokens` and `overflowing` have one element per token. A
/// plain value.
struct Encoding {
  std::vector<std::int64_t> ids;
  /// 0 for the tokens of the first text and 1 for those of the second, or as the file's template says.
  std::vector<std::int64_t> type_ids;
  /// 1 for a token, 0 for padding.
  std::vector<std::int64_t> attention_mask;
  /// 1 for a token that the post-processor or padding added.
  std::vector<std::int64_t> special_tokens_mask;
  std::vector<Offsets> offsets;
  /// The number of the token's word in its text, from 0; -1 for special and padding tokens. The pre-tokenizer
  /// defines the words; an added token is a word.
  std::vector<std::int32_t> word_ids;
  /// 0 or 1: the text of the token; -1 for special and padding tokens.
  std::vector<std::int32_t> sequence_ids;
  /// With EncodeOptions::return_tokens the text of each token, otherwise empty: as in the vocabulary
  /// ("##ing"); for an added token the matched text, including stripped spaces: " <mask>" with lstrip.
  std::vector<std::string> tokens;
  /// The truncated tokens, in pieces of the same length with the same special tokens; nested as in Python if
  /// both texts of a pair were truncated.
  std::vector<Encoding> overflowing;

  std::size_t size() const noexcept { return ids.size(); }
  friend bool operator==(const Encoding&, const Encoding&) = default;
};

/// A word produced by a pre-tokenizer.
struct PreToken {
  std::string text;
  Offsets offsets;
  friend bool operator==(const PreToken&, const PreToken&) = default;
};

/// The side that is truncated or padded.
enum class Side { left, right };

/// Which text of a pair is truncated. `longest_first` splits the remaining length between both.
enum class TruncationStrategy { longest_first, only_first, only_second };

/// Options of truncation.
struct Truncation {
  /// Maximum number of tokens, including special tokens.
  std::size_t max_length = 512;
  TruncationStrategy strategy = TruncationStrategy::longest_first;
  /// Number of tokens that consecutive pieces of the overflow have in common.
  std::size_t stride = 0;
  Side side = Side::right;
};

/// Options of padding.
struct Padding {
  /// The length; if not set, that of the longest encoding of the batch.
  std::optional<std::size_t> length = std::nullopt;
  /// The length is rounded up to a multiple of this, unless it is 0.
  std::size_t multiple_of = 0;
  Side side = Side::right;
  std::int64_t id = 0;
  std::int64_t type_id = 0;
  /// Text of the padding token in Encoding::tokens.
  std::string token = "[PAD]";
};

/// A text, or a pair of texts. Refers to the caller's bytes.
struct TextInput {
  std::string_view text;
  std::optional<std::string_view> pair = std::nullopt;
};

/// How texts are encoded.
struct EncodeOptions {
  /// Add the post-processor's tokens: [CLS], </s> and the like. Such tokens in the text itself are always
  /// found.
  bool add_special_tokens = true;
  /// Fill in Encoding::tokens. Training needs only ids, and a string per token takes time.
  bool return_tokens = false;
  /// Threads of encode_batch; 0: one per processor core. The result does not depend on it.
  int threads = 0;
};

/// Text processing of from_vocab() for BERT's WordPiece. Cased models need lowercase = false.
struct BertOptions {
  bool lowercase = true;
  /// By default the same as `lowercase`.
  std::optional<bool> strip_accents = std::nullopt;
  bool handle_chinese_chars = true;
  bool clean_text = true;
};

/// Text processing of from_vocab() for GPT-2's byte-level BPE. RoBERTa sets both.
struct ByteLevelOptions {
  /// Treat the first word as if a space preceded it.
  bool add_prefix_space = false;
  /// Exclude the spaces of a token from its offsets.
  bool trim_offsets = false;
};

/// Options of decode().
struct DecodeOptions {
  bool skip_special_tokens = true;
};

/// What replaces the fields of a folder's files in from_pretrained(), like the keyword arguments of
/// AutoTokenizer.from_pretrained in Python.
struct PretrainedOptions {
  /// The languages of a translation model's texts, as its tokens are written: "eng_Latn" (NLLB), "en_XX"
  /// (mBART).
  std::optional<std::string> src_lang = std::nullopt;
  std::optional<std::string> tgt_lang = std::nullopt;
  std::optional<bool> add_bos_token = std::nullopt;
  std::optional<bool> add_eos_token = std::nullopt;
  std::optional<bool> add_prefix_space = std::nullopt;
  std::optional<bool> do_lower_case = std::nullopt;
  /// Special tokens by their names: {{"pad_token", "<|endoftext|>"}}. A token that has no id gets the next
  /// one.
  std::map<std::string, std::string> special_tokens = {};

  friend bool operator==(const PretrainedOptions&, const PretrainedOptions&) = default;
};

/// What a model's folder says of its tokenizer besides how texts become tokens.
struct PretrainedSettings {
  /// The class of transformers whose rules the tokenizer follows, "GPT2Tokenizer"; empty for a tokenizer that
  /// is not from a folder.
  std::string tokenizer_class = {};
  /// The greatest number of tokens that the model takes, if the folder says so.
  std::optional<std::size_t> model_max_length = std::nullopt;
  Side padding_side = Side::right;
  Side truncation_side = Side::right;
  /// What the model takes of an encoding; with "token_type_ids", Encoding::type_ids too.
  std::vector<std::string> model_input_names = {"input_ids", "attention_mask"};
  /// The texts of bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token and of the
  /// model's own, as far as there are any.
  std::map<std::string, std::string> special_tokens = {};
  /// Of a translation model, otherwise empty.
  std::string src_lang = {};
  std::string tgt_lang = {};
  /// Whether the files or the options name both; otherwise they are the class's own.
  bool names_both_languages = false;
  /// decode() removes the spaces before punctuation, except for BPE.
  bool clean_up_tokenization_spaces = false;
  /// The sources of the folder's chat templates by their names: "default", and such as "tool_use".
  std::map<std::string, std::string> chat_templates = {};
};

/// How a conversation becomes a text: the arguments of apply_chat_template() in Python.
struct ChatOptions {
  /// The name of one of the folder's templates, or a template; by default "tool_use" with tools if there is
  /// such a template, otherwise "default".
  std::string chat_template = {};
  /// The tools that the model may call, a list of JSON schemas; null: none. Not owned.
  const nlohmann::ordered_json* tools = nullptr;
  /// The documents that the model may quote, a list of objects; null: none. Not owned.
  const nlohmann::ordered_json* documents = nullptr;
  /// Variables of the template's own, an object: {"enable_thinking": false}. They replace special tokens of
  /// the same name. Not owned.
  const nlohmann::ordered_json* variables = nullptr;
  /// Ends the text with the beginning of an answer.
  bool add_generation_prompt = false;
  /// Ends the text within the last message, which the model continues.
  bool continue_final_message = false;
  /// Encode the text; otherwise Chat::encoding is empty.
  bool tokenize = true;
  /// Fill in Chat::assistant_masks.
  bool return_assistant_tokens_mask = false;
};

/// A conversation as text and as tokens.
struct Chat {
  std::string text;
  /// Without the tokens that encode() adds: a template writes them itself.
  Encoding encoding;
  /// 1 for a token of what the assistant says, the template's `{% generation %}` blocks, otherwise 0; empty
  /// unless asked for.
  std::vector<std::int64_t> assistant_masks;
};

}  // namespace tokenizer

/// Converts text to the token ids that a pretrained model was trained on, and back. Reads the folders of
/// published models like AutoTokenizer of transformers, and the files of the Python package `tokenizers`;
/// returns the same ids, masks, offsets and overflow.
///
///     auto tokenizer = Tokenizer::from_pretrained("bert-base-uncased").with_truncation({{.max_length =
///     128}}); auto encoding = tokenizer.encode("Which model is this?"); std::string text =
///     tokenizer.decode(encoding.ids);
///
/// *Supported files.* WordPiece (BERT and its relatives), BPE (GPT-2, RoBERTa, Llama 3, Qwen 2), Unigram and
/// WordLevel: see docs/data.md for the parts. A file that needs any other part is rejected with the name of
/// that part; nothing in a file is ignored.
///
/// *Text* is UTF-8. encode() throws DataError, naming the byte, for text that is not; decode() inserts U+FFFD
/// for bytes that are not whole characters.
///
/// *Threads.* A tokenizer is immutable: any number of threads may use it at the same time. Copies are cheap
/// and share everything. Each encoding thread has its own word cache of bounded size.
///
/// Everything is *Local*.
class Tokenizer {
 public:
  /// The tokenizer of a model's folder as it is published: what AutoTokenizer.from_pretrained of transformers
  /// 5 gives. It reads tokenizer.json, or vocab.json with merges.txt, or vocab.txt; tokenizer_config.json,
  /// special_tokens_map.json, added_tokens.json, and config.json for the model's type. As in transformers, a
  /// class that these name sets the normalizer, the pre-tokenizer and mostly the template itself, whatever
  /// tokenizer.json says: NLLB's language comes first, though its published file has it last.
  ///
  /// Does not truncate or pad until with_truncation() or with_padding(); settings() has what the folder says
  /// of both. A path to a tokenizer.json or a vocab.txt is read like from_file() or from_vocab().
  ///
  /// Throws DataError, in one line with the file and the field, for files that are broken or contradict each
  /// other, a language that the tokenizer lacks, a class that is not supported, and a vocabulary that only a
  /// SentencePiece file holds; UsageError for a language where there are none, and for options with a path to
  /// a file.
  static Tokenizer from_pretrained(const std::filesystem::path& path,
                                   const tokenizer::PretrainedOptions& options = {});

  /// Reads a tokenizer.json. The truncation and padding in the file are applied: see with_truncation().
  /// Throws DataError, naming the file and the position in it, if it cannot be read, has more than 256 MiB,
  /// is not JSON or is nested too deeply, is inconsistent, or needs an unsupported part.
  static Tokenizer from_file(const std::filesystem::path& path);

  /// The same from the text of such a file; `name` is its name in errors.
  static Tokenizer from_json(std::string_view json, const std::string& name = "tokenizer.json");

  /// BERT's tokenizer from a vocab.txt (one token per line, whose id is the line's number): the counterpart
  /// of the package's BertWordPieceTokenizer. The vocabulary must have [UNK], [CLS] and [SEP]. Errors as
  /// from_file().
  static Tokenizer from_vocab(const std::filesystem::path& vocab_txt,
                              const tokenizer::BertOptions& options = {});

  /// GPT-2's tokenizer from a vocab.json and a merges.txt: the counterpart of the package's
  /// ByteLevelBPETokenizer, which adds no special tokens. Errors as from_file().
  static Tokenizer from_vocab(const std::filesystem::path& vocab_json,
                              const std::filesystem::path& merges_txt,
                              const tokenizer::ByteLevelOptions& options = {});

  Tokenizer(const Tokenizer&) noexcept;
  Tokenizer& operator=(const Tokenizer&) noexcept;
  ~Tokenizer();

  /// A copy with another truncation or padding; without a value, it does not truncate or pad. Throws
  /// UsageError if a truncation has no room for the special tokens, or a stride that is not less than the
  /// length without them.
  Tokenizer with_truncation(std::optional<tokenizer::Truncation> truncation) const;
  Tokenizer with_padding(std::optional<tokenizer::Padding> padding) const;
  const std::optional<tokenizer::Truncation>& truncation() const noexcept;
  const std::optional<tokenizer::Padding>& padding() const noexcept;

  /// What the model's folder says besides; the defaults for a tokenizer that is not from a folder.
  const tokenizer::PretrainedSettings& settings() const noexcept;
  /// The id of a special token by its name in the files, "pad_token"; nothing if there is none.
  std::optional<std::int64_t> special_token_id(const std::string& name) const;

  /// A copy for the texts that a translation model is to write: with the template of tgt_lang, like
  /// text_target in Python. The tokenizer itself if it has no languages.
  Tokenizer for_targets() const;

  /// A conversation as the model was trained on it: transformers' apply_chat_template(). `messages` is a list
  /// of objects with "role" and "content"; members that are null are left out, as transformers does. See
  /// lockstep/tokenizers/chat_template.hpp for templates.
  ///
  /// Throws UsageError if there is no such template, for a mask from a template without `{% generation %}`
  /// blocks, for options that exclude each other, and for messages that are not a list of objects; DataError,
  /// with the template's line, for what the template refuses or cannot do.
  tokenizer::Chat apply_chat_template(const nlohmann::ordered_json& messages,
                                      const tokenizer::ChatOptions& options = {}) const;

  /// Whether apply_chat_template() with these options can tell what the assistant says.
  bool marks_generation(const tokenizer::ChatOptions& options = {}) const;

  /// Encodes one text. Throws DataError for text that is not UTF-8 or has more than 2^31 - 1 bytes;
  /// UsageError if truncation is impossible: only_second without a pair, or a text too short to lose enough
  /// tokens.
  tokenizer::Encoding encode(std::string_view text, const tokenizer::EncodeOptions& options = {}) const;
  tokenizer::Encoding encode(std::string_view text, std::string_view pair,
                             const tokenizer::EncodeOptions& options = {}) const;

  /// Encodes many texts on several threads; the results are in the order of the inputs. Errors as encode(),
  /// for the first input that has one, with its number.
  std::vector<tokenizer::Encoding> encode_batch(const std::vector<tokenizer::TextInput>& inputs,
                                                const tokenizer::EncodeOptions& options = {}) const;
  std::vector<tokenizer::Encoding> encode_batch(const std::vector<std::string>& texts,
                                                const tokenizer::EncodeOptions& options = {}) const;

  /// The normalized form of a text; the package's normalizer.normalize_str. Throws DataError for text that is
  /// not UTF-8.
  std::string normalize(std::string_view text) const;

  /// The pre-tokenizer's words of a text, which is not normalized first, as the model's vocabulary writes
  /// them, with their offsets; the package's pre_tokenizer.pre_tokenize_str. Throws DataError as normalize().
  std::vector<tokenizer::PreToken> pre_tokenize(std::string_view text) const;

  /// The text of the ids, joined by the file's decoder; ids that are not in the vocabulary are skipped.
  std::string decode(const std::vector<std::int64_t>& ids,
                     const tokenizer::DecodeOptions& options = {}) const;

  /// The id of a token as written in the vocabulary ("##ing", "\u0120the"), including added tokens.
  std::optional<std::int64_t> token_to_id(std::string_view token) const;
  /// The token of an id, or nothing.
  std::optional<std::string> id_to_token(std::int64_t id) const;
  /// The number of tokens, including added ones.
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
