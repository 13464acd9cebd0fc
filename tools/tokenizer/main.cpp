// `lockstep tokenizer` runs this program: it trains tokenizers, encodes texts and decodes ids. Does not need
// LibTorch.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "core/commands.hpp"
#include "core/text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/iterable_dataset.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/tokenizers/trainers.hpp"

namespace {

using namespace lockstep;
using Words = std::vector<std::string>;

/// Number of texts in memory at a time.
constexpr std::size_t kTextsAtOnce = 1 << 16;

enum class ModelKind { bpe, wordpiece };
inline std::vector<std::string> option_words(ModelKind) { return {"bpe", "wordpiece"}; }

struct TrainOptions {
  ModelKind model = ModelKind::bpe;
  std::string base;
  std::string output = "tokenizer.json";
  std::int64_t vocab_size = 30000;
  std::int64_t min_frequency = 2;
  Words special_tokens;
  std::int64_t limit_alphabet = 0;
  std::int64_t max_token_length = 0;
  bool lowercase = true;
  int threads = 0;
  std::string text_column = "text";
  Words files;
};

const OptionTable<TrainOptions>& train_table() {
  static const auto table =
      OptionTable<TrainOptions>("lockstep tokenizer train",
                                "Learns a vocabulary from the lines of text files, or from a column of data "
                                "sets, as the Python package tokenizers does, and writes a tokenizer.json.")
          .add("model", &TrainOptions::model, "Byte-level BPE as GPT-2's, or WordPiece as BERT's.")
          .add("base", &TrainOptions::base,
               "A tokenizer.json whose normalizer, pre-tokenizer and model are taken instead.",
               metavar("FILE"))
          .add("output", &TrainOptions::output, "The file to write.", metavar("FILE"))
          .add("vocab-size", &TrainOptions::vocab_size, "The size of the vocabulary.", at_least(1))
          .add("min-frequency", &TrainOptions::min_frequency,
               "The number of times that a pair must occur to become a token.", at_least(0))
          .add("special-tokens", &TrainOptions::special_tokens,
               "They get the first ids. Without it: <|endoftext|>, or [PAD], [UNK], [CLS], [SEP] and [MASK].")
          .add("limit-alphabet", &TrainOptions::limit_alphabet,
               "At most this many characters become tokens of their own; 0: all.", at_least(0))
          .add("max-token-length", &TrainOptions::max_token_length,
               "Tokens have fewer characters than this; 0: any number.", at_least(0))
          .add("lowercase", &TrainOptions::lowercase, "For WordPiece: convert text to lower case.")
          .add("threads", &TrainOptions::threads, "0: one on each processor core.", at_least(0))
          .add("text-column", &TrainOptions::text_column,
               "The column of texts, of files that have columns: .jsonl, .csv, .arrow, .parquet.")
          .rest("FILE", &TrainOptions::files,
                "Text in UTF-8 or a data set, also compressed (.gz, .zst); patterns such as part-*.txt name "
                "several; - is the standard input.",
                true);
  return table;
}

/// Calls `use(line)` for each line of standard input.
template <class Use>
void each_line(const Use& use) {
  for (std::string line; std::getline(std::cin, line);) use(std::move(line));
  if (std::cin.bad()) throw DataError("the standard input cannot be read to its end");
}

/// Derived from the file name; unknown endings mean lines of text.
FileFormat format_of(std::filesystem::path file) {
  for (const char* packed : {".gz", ".zst"})
    if (file.extension() == packed) file.replace_extension();
  for (const char* table : {".arrow", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet"})
    if (file.extension() == table) return FileFormat::automatic;
  return FileFormat::text;
}

/// Calls `use(text)` for each line of a text file, or each row of a column.
template <class Use>
void each_text(const std::string& file, const std::string& column, const Use& use) {
  const auto format = format_of(file);
  const std::string name = format == FileFormat::text ? "text" : column;
  StreamOptions options;
  options.load.format = format;
  auto rows = IterableDataset::load(file, options);
  for (auto& row : rows) {
    const auto field =
        std::find_if(row.begin(), row.end(), [&](const auto& entry) { return entry.first == name; });
    const auto* text = field == row.end() ? nullptr : std::get_if<std::string>(&field->second.variant());
    if (text == nullptr) {
      Words names;
      for (const auto& entry : row) names.push_back(entry.first);
      throw DataError(
          fmt::format("'{}' has no text in the column '{}' of a row. Its columns are {}: name one with "
                      "--text-column.",
                      file, name, fmt::join(names, ", ")));
    }
    use(std::string(*text));
  }
}

void feed(tokenizer::TokenizerTrainer& trainer, const std::string& file, const TrainOptions& options) {
  Words texts;
  std::int64_t fed = 0;
  const auto flush = [&] {
    try {
      trainer.feed({texts.begin(), texts.end()}, options.threads, fed);
    } catch (const DataError& error) {
      throw DataError(fmt::format("{}: {}", file == "-" ? "the standard input" : file, error.what()));
    }
    fed += std::ssize(texts);
    texts.clear();
  };
  const auto add = [&](std::string text) {
    texts.push_back(std::move(text));
    if (texts.size() == kTextsAtOnce) flush();
  };
  if (file == "-") {
    each_line(add);
  } else {
    each_text(file, options.text_column, add);
  }
  flush();
}

Words special_tokens_of(const TrainOptions& options) {
  if (!options.special_tokens.empty()) return options.special_tokens;
  if (!options.base.empty()) return {};
  if (options.model == ModelKind::bpe) return {"<|endoftext|>"};
  return {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(fmt::format("'{}' cannot be read", path));
  return {std::istreambuf_iterator<char>(file), {}};
}

int train(const TrainOptions& options) {
  const bool is_byte_level = options.base.empty() && options.model == ModelKind::bpe;
  const std::string base = !options.base.empty() ? text_of(options.base)
                           : is_byte_level       ? tokenizer::byte_level_bpe()
                                                 : tokenizer::bert_word_piece(options.lowercase);
  tokenizer::TokenizerTrainer trainer(base, options.base.empty() ? "tokenizer.json" : options.base);
  for (const auto& file : options.files) feed(trainer, file, options);
  tokenizer::TrainerOptions how{.vocab_size = static_cast<std::size_t>(options.vocab_size),
                                .min_frequency = static_cast<std::uint64_t>(options.min_frequency),
                                .special_tokens = special_tokens_of(options)};
  if (options.limit_alphabet > 0) how.limit_alphabet = options.limit_alphabet;
  if (options.max_token_length > 0) how.max_token_length = options.max_token_length;
  if (is_byte_level) how.initial_alphabet = tokenizer::byte_level_alphabet();
  const std::string json = trainer.train(how);
  const auto size = Tokenizer::from_json(json, options.output).vocab_size();
  write_atomically(options.output, json);
  std::cout << fmt::format("{}: {} tokens\n", options.output, size);
  return 0;
}

/// A model's folder, or a tokenizer.json with its truncation and padding.
Tokenizer open_tokenizer(const std::string& path, const std::string& src_lang, const std::string& tgt_lang) {
  if (!std::filesystem::is_directory(path)) {
    if (!src_lang.empty() || !tgt_lang.empty())
      throw UsageError("--src-lang and --tgt-lang need the folder of a translation model as --tokenizer");
    return std::filesystem::path(path).extension() == ".txt" ? Tokenizer::from_vocab(path)
                                                             : Tokenizer::from_file(path);
  }
  tokenizer::PretrainedOptions options;
  if (!src_lang.empty()) options.src_lang = src_lang;
  if (!tgt_lang.empty()) options.tgt_lang = tgt_lang;
  return Tokenizer::from_pretrained(path, options);
}

struct EncodeOptions {
  std::string tokenizer = "tokenizer.json";
  std::string src_lang, tgt_lang;
  bool targets = false;
  bool tokens = false, normalized = false, pre_tokens = false, special_tokens = true;
  Words texts;
};

const OptionTable<EncodeOptions>& encode_table() {
  static const auto table =
      OptionTable<EncodeOptions>("lockstep tokenizer encode", "Prints the ids of each text on a line.")
          .add(
              "tokenizer", &EncodeOptions::tokenizer,
              "The tokenizer.json, or a model's folder, which is read as AutoTokenizer of transformers does.",
              metavar("PATH"))
          .add("src-lang", &EncodeOptions::src_lang,
               "The language of the texts, for a translation model: eng_Latn.")
          .add("tgt-lang", &EncodeOptions::tgt_lang, "The language that it translates to.")
          .add("targets", &EncodeOptions::targets, "The texts are translations, in the language --tgt-lang.")
          .add("tokens", &EncodeOptions::tokens, "Print tokens, not ids.")
          .add("normalized", &EncodeOptions::normalized, "Print the normalized text.")
          .add("pre-tokens", &EncodeOptions::pre_tokens,
               "Print the model's input: the words of the normalized text and their positions in it.")
          .add("special-tokens", &EncodeOptions::special_tokens,
               "Add the special tokens of the post-processor.")
          .rest("TEXT", &EncodeOptions::texts, "Without one: the lines of the standard input.");
  return table;
}

std::string encoded(const Tokenizer& tokenizer, const std::string& text, const EncodeOptions& options) {
  if (options.normalized) return tokenizer.normalize(text);
  if (options.pre_tokens) {
    Words words;
    for (const auto& [word, offsets] : tokenizer.pre_tokenize(tokenizer.normalize(text)))
      words.push_back(fmt::format("{:?} {}:{}", word, offsets.begin, offsets.end));
    return fmt::format("{}", fmt::join(words, "  "));
  }
  const auto encoding =
      tokenizer.encode(text, {.add_special_tokens = options.special_tokens, .return_tokens = options.tokens});
  return options.tokens ? fmt::format("{}", fmt::join(encoding.tokens, " "))
                        : fmt::format("{}", fmt::join(encoding.ids, " "));
}

int encode(const EncodeOptions& options) {
  const auto opened = open_tokenizer(options.tokenizer, options.src_lang, options.tgt_lang);
  const auto tokenizer = options.targets ? opened.for_targets() : opened;
  const auto print = [&](const std::string& text) { std::cout << encoded(tokenizer, text, options) << '\n'; };
  for (const auto& text : options.texts) print(text);
  if (options.texts.empty()) each_line(print);
  return 0;
}

struct DecodeOptions {
  std::string tokenizer = "tokenizer.json";
  bool skip_special_tokens = true;
  Words ids;
};

const OptionTable<DecodeOptions>& decode_table() {
  static const auto table =
      OptionTable<DecodeOptions>("lockstep tokenizer decode", "Prints the text of ids.")
          .add("tokenizer", &DecodeOptions::tokenizer, "The tokenizer.json, or a model's folder.",
               metavar("PATH"))
          .add("skip-special-tokens", &DecodeOptions::skip_special_tokens, "Leave special tokens out.")
          .rest("ID", &DecodeOptions::ids, "Without one: a text for each line of the standard input.");
  return table;
}

std::string decoded(const Tokenizer& tokenizer, const Words& words, const DecodeOptions& options) {
  std::vector<std::int64_t> ids;
  for (const auto& word : words) {
    const auto id = parse_number<std::int64_t>(word);
    if (!id) throw UsageError(fmt::format("decode: '{}' is not an id: expected integers", word));
    ids.push_back(*id);
  }
  return tokenizer.decode(ids, {.skip_special_tokens = options.skip_special_tokens});
}

int decode(const DecodeOptions& options) {
  const auto tokenizer = open_tokenizer(options.tokenizer, "", "");
  const auto print = [&](const Words& ids) { std::cout << decoded(tokenizer, ids, options) << '\n'; };
  if (!options.ids.empty()) print(options.ids);
  if (options.ids.empty()) {
    each_line([&](const std::string& line) {
      std::istringstream words(line);
      print({std::istream_iterator<std::string>(words), {}});
    });
  }
  return 0;
}

template <auto table, auto run>
int action(const Words& words, std::ostream& out, std::ostream&) {
  const auto parsed = parse_or_help(table(), words, out);
  return parsed ? run(parsed->options) : 0;
}

int run(const Words& words) {
  static const std::vector<Command> actions{
      {"train", "Trains a tokenizer on text files and writes a tokenizer.json.", action<train_table, train>},
      {"encode", "Prints the ids, tokens or words of texts.", action<encode_table, encode>},
      {"decode", "Prints the text of ids.", action<decode_table, decode>},
  };
  return run_one_of(actions, "lockstep tokenizer", words, std::cout, std::cerr);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("lockstep tokenizer", [&] { return run({argv + std::min(argc, 1), argv + argc}); });
}
