#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizers/pretrained/class_recipe.hpp"

namespace lockstep::tokenizer::recipe {

// What recipes are made of: parts as a tokenizer.json has them.

using Json = nlohmann::json;
using PostProcessorMaker = std::function<Json(const IdOf& id, const std::string& language)>;

/// SentencePiece's visible blank.
inline constexpr const char* kVisibleBlank = "\u2581";

/// What a recipe is made of besides the class's arguments.
struct FileParts {
  /// SentencePiece's table of the file's normalizer, or null.
  Json charsmap;
  /// The file's model.
  const Json& model;
};

Json part(const char* type);
Json sequence_of(const char* name, Json parts);
Json byte_level_part(bool add_prefix_space, bool use_regex = true);
Json metaspace_part(const char* scheme, bool split = true);
const char* scheme_of(bool add_prefix_space);
Json replace_text(const char* text, const char* by);
Json replace_matches(const char* expression, const char* by);
Json strip_part(bool left, bool right);
Json split_matches(const char* expression);
/// Words between white space, each with a blank before it.
Json words_with_blanks(bool add_prefix_space);
Json precompiled(const FileParts& file);
/// The table, if there is one, before other normalizers.
Json table_and(const FileParts& file, Json others);
/// The table, if there is one, behind other normalizers.
Json and_table(const FileParts& file, Json others);
Json table_alone(const FileParts& file);
GivenToken mask(const char* content);
GivenToken plain(const char* content);
/// The template of BERT: cls, text, sep, and of a pair the second text of type 1 with its sep.
PostProcessorMaker around_texts(std::string cls, std::string sep, int cls_type = 0);
/// The template of RoBERTa's relatives: all of type 0, and two sep between the texts.
PostProcessorMaker with_two_between(std::string cls, std::string sep);
PostProcessorMaker roberta_processing(std::string cls, std::string sep, bool trim_offsets,
                                      bool add_prefix_space);
/// The position of a piece in a Unigram's vocabulary.
std::int64_t index_of(const FileParts& file, const std::string& piece, std::int64_t otherwise,
                      bool scored_zero);
ClassRecipe unigram(std::int64_t unknown);
ClassRecipe byte_level_recipe(bool add_prefix_space);
/// The special tokens of XLM-R, mBART and their relatives.
void take_fairseq_tokens(ClassFields& fields, GivenToken mask_token);

}  // namespace lockstep::tokenizer::recipe
