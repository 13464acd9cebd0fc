#include "tokenizers/pretrained/recipe_parts.hpp"

#include <utility>

namespace lockstep::tokenizer::recipe {

Json part(const char* type) { return {{"type", type}}; }

Json sequence_of(const char* name, Json parts) { return {{"type", "Sequence"}, {name, std::move(parts)}}; }

Json byte_level_part(bool add_prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json metaspace_part(const char* scheme, bool split) {
  return {
      {"type", "Metaspace"}, {"replacement", kVisibleBlank}, {"prepend_scheme", scheme}, {"split", split}};
}

const char* scheme_of(bool add_prefix_space) { return add_prefix_space ? "always" : "never"; }

Json replace_text(const char* text, const char* by) {
  return {{"type", "Replace"}, {"pattern", {{"String", text}}}, {"content", by}};
}

Json replace_matches(const char* expression, const char* by) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", expression}}}, {"content", by}};
}

Json strip_part(bool left, bool right) {
  return {{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
}

Json split_matches(const char* expression) {
  return {
      {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}

Json words_with_blanks(bool add_prefix_space) {
  return sequence_of("pretokenizers",
                     Json::array({part("WhitespaceSplit"), metaspace_part(scheme_of(add_prefix_space))}));
}

Json precompiled(const FileParts& file) {
  return {{"type", "Precompiled"}, {"precompiled_charsmap", file.charsmap}};
}

Json table_and(const FileParts& file, Json others) {
  if (!file.charsmap.is_null()) others.insert(others.begin(), precompiled(file));
  return sequence_of("normalizers", std::move(others));
}

Json and_table(const FileParts& file, Json others) {
  if (!file.charsmap.is_null()) others.push_back(precompiled(file));
  return sequence_of("normalizers", std::move(others));
}

Json table_alone(const FileParts& file) { return file.charsmap.is_null() ? Json() : precompiled(file); }

GivenToken mask(const char* content) { return {.content = content, .is_text = false, .lstrip = true}; }

GivenToken plain(const char* content) { return {.content = content}; }

PostProcessorMaker around_texts(std::string cls, std::string sep, int cls_type) {
  return [=](const IdOf& id, const std::string&) {
    return template_processing({{cls, cls_type}, {"$A"}, {sep}},
                               {{cls, cls_type}, {"$A"}, {sep}, {"$B", 1}, {sep, 1}}, id);
  };
}

PostProcessorMaker with_two_between(std::string cls, std::string sep) {
  return [=](const IdOf& id, const std::string&) {
    return template_processing({{cls}, {"$A"}, {sep}}, {{cls}, {"$A"}, {sep}, {sep}, {"$B"}, {sep}}, id);
  };
}

PostProcessorMaker roberta_processing(std::string cls, std::string sep, bool trim_offsets,
                                      bool add_prefix_space) {
  return [=](const IdOf& id, const std::string&) {
    return Json{{"type", "RobertaProcessing"},
                {"sep", {sep, id(sep)}},
                {"cls", {cls, id(cls)}},
                {"trim_offsets", trim_offsets},
                {"add_prefix_space", add_prefix_space}};
  };
}

std::int64_t index_of(const FileParts& file, const std::string& piece, std::int64_t otherwise,
                      bool scored_zero) {
  if (!file.model.is_object() || !file.model.contains("vocab") || !file.model["vocab"].is_array())
    return otherwise;
  std::int64_t position = 0;
  for (const auto& entry : file.model["vocab"]) {
    if (entry.is_array() && entry.size() == 2 && entry[0] == piece && (!scored_zero || entry[1] == 0.0))
      return position;
    ++position;
  }
  return otherwise;
}

ClassRecipe unigram(std::int64_t unknown) {
  return {.model = "Unigram", .model_fields = {{"unk_id", unknown}, {"byte_fallback", false}}};
}

ClassRecipe byte_level_recipe(bool add_prefix_space) {
  return {
      .model = "BPE", .pre_tokenizer = byte_level_part(add_prefix_space), .decoder = byte_level_part(true)};
}

void take_fairseq_tokens(ClassFields& fields, GivenToken mask_token) {
  fields.token("bos_token", plain("<s>"));
  fields.token("eos_token", plain("</s>"));
  fields.token("unk_token", plain("<unk>"));
  fields.token("sep_token", plain("</s>"));
  fields.token("pad_token", plain("<pad>"));
  fields.token("cls_token", plain("<s>"));
  fields.token("mask_token", std::move(mask_token));
}

}  // namespace lockstep::tokenizer::recipe
