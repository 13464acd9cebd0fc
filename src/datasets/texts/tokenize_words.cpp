#include "lockstep/datasets/tokenize_words.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/texts/tokenizer_key.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {
namespace {

using tokenizer::Encoding;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kUnlabelled = -100;

/// The special tokens around a text.
struct Frame {
  Encoding before, after;
  std::size_t size() const { return before.size() + after.size(); }
};

/// Words as tokens, without special ones, and a label for each token.
struct LabelledTokens {
  Numbers ids, types, labels;
};

void append_part(Encoding& to, const Encoding& from, std::size_t begin, std::size_t end) {
  const auto copy = [&](Numbers Encoding::*part) {
    const auto& values = from.*part;
    (to.*part).insert((to.*part).end(), values.begin() + static_cast<std::ptrdiff_t>(begin),
                      values.begin() + static_cast<std::ptrdiff_t>(end));
  };
  copy(&Encoding::ids);
  copy(&Encoding::type_ids);
}

/// Of an encoding of one text, which has a token of its own unless the text has none.
Frame frame_in(const Encoding& encoding) {
  const auto& special = encoding.special_tokens_mask;
  const auto first = std::find(special.begin(), special.end(), 0);
  const auto last = std::find(special.rbegin(), special.rend(), 0);
  Frame frame;
  append_part(frame.before, encoding, 0, static_cast<std::size_t>(first - special.begin()));
  if (first != special.end())
    append_part(frame.after, encoding, static_cast<std::size_t>(last.base() - special.begin()),
                special.size());
  return frame;
}

/// A worker's tokenizer, and what it knows of it.
class WordTokenizer {
 public:
  explicit WordTokenizer(const TokenizeWordsOptions& options)
      : tokenizer_(load_tokenizer(options.tokenizer, options.pretrained)), options_(options) {}

  LabelledTokens tokens_of(const std::vector<std::string>& words, const Numbers& labels) {
    LabelledTokens tokens;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const Encoding word = tokenizer_.encode(words[i], {.add_special_tokens = false, .threads = 1});
      if (word.size() > 0 && !frame_) frame_ = frame_in(tokenizer_.encode(words[i], {.threads = 1}));
      tokens.ids.insert(tokens.ids.end(), word.ids.begin(), word.ids.end());
      tokens.types.insert(tokens.types.end(), word.type_ids.begin(), word.type_ids.end());
      for (std::size_t k = 0; k < word.size(); ++k)
        tokens.labels.push_back(k == 0 ? labels[i] : inner_label(labels[i]));
    }
    return tokens;
  }

  /// Cuts the tokens to the greatest length, and puts the special ones around them.
  LabelledTokens complete(LabelledTokens tokens) {
    const Frame frame = frame_ ? *frame_ : frame_in(tokenizer_.encode("", {.threads = 1}));
    if (options_.max_length > 0) cut(tokens, room(frame));
    const auto around = [&](Numbers& values, const Numbers& before, const Numbers& after) {
      values.insert(values.begin(), before.begin(), before.end());
      values.insert(values.end(), after.begin(), after.end());
    };
    around(tokens.ids, frame.before.ids, frame.after.ids);
    around(tokens.types, frame.before.type_ids, frame.after.type_ids);
    around(tokens.labels, Numbers(frame.before.size(), kUnlabelled),
           Numbers(frame.after.size(), kUnlabelled));
    return tokens;
  }

 private:
  std::int64_t inner_label(std::int64_t label) const {
    if (label < 0 || options_.inner_labels.empty()) return kUnlabelled;
    if (label < std::ssize(options_.inner_labels))
      return options_.inner_labels[static_cast<std::size_t>(label)];
    throw DataError(fmt::format("tokenize_words: the label {} has no inner label: expected labels below {}.",
                                label, options_.inner_labels.size()));
  }

  std::size_t room(const Frame& frame) const {
    const auto most = static_cast<std::size_t>(options_.max_length);
    if (most > frame.size()) return most - frame.size();
    throw UsageError(
        fmt::format("tokenize_words: max_length is {}, but each text has {} special tokens: expected more.",
                    most, frame.size()));
  }

  void cut(LabelledTokens& tokens, std::size_t most) const {
    if (tokens.ids.size() <= most) return;
    const bool is_left = tokenizer_.settings().truncation_side == tokenizer::Side::left;
    for (auto* values : {&tokens.ids, &tokens.types, &tokens.labels}) {
      if (is_left) values->erase(values->begin(), values->end() - static_cast<std::ptrdiff_t>(most));
      values->resize(most);
    }
  }

  Tokenizer tokenizer_;
  TokenizeWordsOptions options_;
  std::optional<Frame> frame_;
};

/// The elements of a row's list.
template <class Element, class Read>
std::vector<Element> elements_of(const Column& column, const std::string& name, std::int64_t row,
                                 std::int64_t number, const Read& read) {
  const auto fail = [&](const char* what) {
    return DataError(
        fmt::format("tokenize_words: row {} of the column '{}' {}: fill it in, or leave the row "
                    "out.",
                    number, name, what));
  };
  const Value list = column.value(row);
  if (list.is_null()) throw fail("is null");
  std::vector<Element> elements;
  for (const auto& element : list.list()) {
    if (element.is_null()) throw fail("has a null");
    elements.push_back(read(element));
  }
  return elements;
}

Columns tokenize_batch(const MapBatch& batch, WordTokenizer& tokenizer, const TokenizeWordsOptions& options) {
  const Column words = batch.rows.column(options.column), labels = batch.rows.column(options.label_column);
  const DataType lists(DataType::list(DataType(TypeKind::int64)));
  ColumnBuilder ids(lists), mask(lists), types(lists), targets(lists);
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    const std::int64_t number = batch.first_row + row;
    const auto texts = elements_of<std::string>(words, options.column, row, number,
                                                [](const Value& value) { return value.text(); });
    const auto classes = elements_of<std::int64_t>(labels, options.label_column, row, number,
                                                   [](const Value& value) { return value.integer(); });
    if (texts.size() != classes.size())
      throw DataError(
          fmt::format("tokenize_words: row {} has {} words ('{}') and {} labels ('{}'): expected "
                      "one for each word.",
                      number, texts.size(), options.column, classes.size(), options.label_column));
    const LabelledTokens tokens = tokenizer.complete(tokenizer.tokens_of(texts, classes));
    ids.append(tokens.ids);
    mask.append(Numbers(tokens.ids.size(), 1));
    types.append(tokens.types);
    targets.append(tokens.labels);
  }
  Columns columns;
  for (const auto& name : options.outputs)
    columns.emplace_back(name, (name == "input_ids"        ? ids
                                : name == "attention_mask" ? mask
                                                           : types)
                                   .finish());
  columns.emplace_back("labels", targets.finish());
  return columns;
}

nlohmann::json words_parameters(const TokenizeWordsOptions& options) {
  return {{"column", options.column},
          {"label_column", options.label_column},
          {"max_length", options.max_length},
          {"inner_labels", options.inner_labels},
          {"outputs", options.outputs}};
}

void check_words_options(const ArrowDataset& texts, const TokenizeWordsOptions& options) {
  if (options.max_length < 0)
    throw UsageError(fmt::format(
        "tokenize_words: max_length must be 0 (texts are not cut) or more, but is {}.", options.max_length));
  for (const auto& name : options.outputs) {
    if (name == "input_ids" || name == "attention_mask" || name == "token_type_ids") continue;
    throw UsageError("tokenize_words: there is no output '" + name +
                     "'; there are input_ids, attention_mask and token_type_ids.");
  }
  for (const auto& name : {options.column, options.label_column}) {
    const auto& type = texts.column(name).type();
    if (!type.is_list())
      throw UsageError(
          fmt::format("tokenize_words: the column '{}' has the type {}, expected lists.", name, type.text()));
  }
  if (!texts.column(options.column).type().element().is_text_or_binary())
    throw UsageError(fmt::format("tokenize_words: the column '{}' has the type {}, expected lists of texts.",
                                 options.column, texts.column(options.column).type().text()));
}

}  // namespace

ArrowDataset tokenize_words(const ArrowDataset& texts, const TokenizeWordsOptions& options,
                            MapOptions map_options) {
  check_words_options(texts, options);
  set_text_map(map_options,
               {"tokenize_words", words_parameters(options), options.tokenizer, options.pretrained},
               texts.column_names());
  return map(
      texts, [options](const Worker&) { return WordTokenizer(options); },
      [options](const MapBatch& batch, WordTokenizer& tokenizer) {
        return tokenize_batch(batch, tokenizer, options);
      },
      map_options);
}

}  // namespace lockstep
