#include "bert_normalizer.hpp"
#include "bpe.hpp"
#include "lockstep/core/error.hpp"
#include "tokenizer_parts.hpp"
#include "word_piece.hpp"

namespace lockstep {
namespace tokenizer {
namespace {

/// The added tokens as a file would list them.
nlohmann::json added_token(const std::string& content, std::uint32_t id) {
  return {{"content", content}, {"id", id}, {"special", true}, {"normalized", false}};
}

/// The special tokens of BERT that the vocabulary has; all but [PAD] and [MASK] must be there.
nlohmann::json bert_tokens(const Vocabulary& vocabulary, const std::string& file) {
  auto tokens = nlohmann::json::array();
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const auto id = vocabulary.id(token);
    if (id) tokens.push_back(added_token(token, *id));
    const bool needed = std::string_view(token) == "[CLS]" || std::string_view(token) == "[SEP]";
    if (!id && needed) throw DataError("'" + file + "' is no vocabulary of BERT: it has no '" + token + "'.");
  }
  return tokens;
}

std::unique_ptr<const Normalizer> bert_normalizer(const BertOptions& options) {
  return std::make_unique<BertNormalizer>(
      BertNormalizer::Settings{.clean_text = options.clean_text,
                               .handle_chinese_chars = options.handle_chinese_chars,
                               .strip_accents = options.strip_accents.value_or(options.lowercase),
                               .lowercase = options.lowercase});
}

Merges read_merge_lines(std::string_view text, const std::string& file) {
  Merges merges;
  std::size_t number = 0;
  for (const auto line : lines_of(text)) {
    ++number;
    if (line.starts_with("#version")) continue;
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
      throw DataError("'" + file + "' is no valid list of merges: line " + std::to_string(number) +
                      " needs two tokens with a blank between them.");
    }
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  return merges;
}

}  // namespace
}  // namespace tokenizer

Tokenizer Tokenizer::from_vocab(const std::filesystem::path& vocab_txt,
                                const tokenizer::BertOptions& options) {
  const auto file = vocab_txt.string();
  auto pipeline = std::make_shared<tokenizer::Pipeline>();
  pipeline->normalizer = tokenizer::bert_normalizer(options);
  pipeline->pre_tokenizer = tokenizer::PreTokenizer::of(tokenizer::split_bert);
  pipeline->model = std::make_unique<tokenizer::WordPiece>(
      tokenizer::read_vocabulary_lines(tokenizer::read_text_file(vocab_txt), file),
      tokenizer::WordPiece::Settings{}, file);
  const auto& vocabulary = pipeline->model->vocabulary();
  const auto tokens = tokenizer::bert_tokens(vocabulary, file);
  pipeline->added =
      tokenizer::AddedTokens(tokenizer::Node(tokens, file), vocabulary, pipeline->normalizer.get());
  pipeline->post_processor = tokenizer::PostProcessor::bert(*vocabulary.id("[CLS]"), *vocabulary.id("[SEP]"));
  pipeline->decoder = tokenizer::make_word_piece_decoder("##", true);
  return Tokenizer(std::make_shared<const Parts>(Parts{.pipeline = std::move(pipeline)}));
}

Tokenizer Tokenizer::from_vocab(const std::filesystem::path& vocab_json,
                                const std::filesystem::path& merges_txt,
                                const tokenizer::ByteLevelOptions& options) {
  const auto file = vocab_json.string();
  const auto tree = tokenizer::parse_json(tokenizer::read_text_file(vocab_json), file);
  const auto merges = tokenizer::read_merge_lines(tokenizer::read_text_file(merges_txt), merges_txt.string());
  auto pipeline = std::make_shared<tokenizer::Pipeline>();
  pipeline->pre_tokenizer = tokenizer::PreTokenizer::byte_level(options.add_prefix_space);
  pipeline->model = std::make_unique<tokenizer::Bpe>(tokenizer::read_vocabulary(tokenizer::Node(tree, file)),
                                                     merges, false, file);
  pipeline->post_processor =
      tokenizer::PostProcessor::byte_level(options.add_prefix_space, options.trim_offsets);
  pipeline->decoder = tokenizer::make_byte_level_decoder();
  return Tokenizer(std::make_shared<const Parts>(Parts{.pipeline = std::move(pipeline)}));
}

}  // namespace lockstep
