#include "tokenizers/pretrained/byte_recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep::tokenizer::recipe {
namespace {

Json bert_normalizer(const ClassFields& fields, bool clean_text = true) {
  const bool lowercase = fields.flag("do_lower_case", true);
  return {{"type", "BertNormalizer"},
          {"clean_text", clean_text},
          {"handle_chinese_chars", fields.flag("tokenize_chinese_chars", true)},
          {"strip_accents", fields.flag("strip_accents", lowercase)},
          {"lowercase", lowercase}};
}

ClassRecipe word_pieces(const ClassFields& fields, const std::string& unknown) {
  return {.model = "WordPiece",
          .model_fields = {{"unk_token", unknown}},
          .normalizer = bert_normalizer(fields),
          .pre_tokenizer = part("BertPreTokenizer"),
          .decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}};
}

void take_end_of_text(ClassFields& fields) {
  for (const char* name : {"unk_token", "bos_token", "eos_token"}) fields.token(name, plain("<|endoftext|>"));
}

ClassRecipe qwen(ClassFields& fields, const char* expression) {
  fields.token("unk_token", plain("<|endoftext|>"));
  fields.token("bos_token", {});
  fields.token("eos_token", plain("<|endoftext|>"));
  fields.token("pad_token", plain("<|endoftext|>"));
  auto recipe = byte_level_recipe(true);
  recipe.normalizer = part("NFC");
  recipe.pre_tokenizer = sequence_of(
      "pretokenizers",
      {split_matches(expression), byte_level_part(fields.flag("add_prefix_space", false), false)});
  recipe.adds_again = true;
  return recipe;
}

}  // namespace

ClassRecipe bert(ClassFields& fields, const FileParts&) {
  const auto unknown = fields.token("unk_token", plain("[UNK]"));
  const auto sep = fields.token("sep_token", plain("[SEP]"));
  fields.token("pad_token", plain("[PAD]"));
  const auto cls = fields.token("cls_token", plain("[CLS]"));
  fields.token("mask_token", plain("[MASK]"));
  auto recipe = word_pieces(fields, unknown);
  recipe.post_processor = around_texts(cls, sep);
  recipe.inputs = {"input_ids", "token_type_ids", "attention_mask"};
  return recipe;
}

ClassRecipe distil_bert(ClassFields& fields, const FileParts& file) {
  auto recipe = bert(fields, file);
  recipe.inputs = {"input_ids", "attention_mask"};
  return recipe;
}

ClassRecipe mpnet(ClassFields& fields, const FileParts&) {
  const auto given = [](const char* content) { return GivenToken{.content = content, .is_text = false}; };
  fields.token("bos_token", given("<s>"));
  fields.token("eos_token", given("</s>"));
  const auto unknown = fields.token("unk_token", given("[UNK]"));
  const auto sep = fields.token("sep_token", given("</s>"));
  fields.token("pad_token", given("<pad>"));
  const auto cls = fields.token("cls_token", given("<s>"));
  fields.token("mask_token", mask("<mask>"));
  auto recipe = word_pieces(fields, unknown);
  recipe.post_processor = roberta_processing(cls, sep, true, false);
  return recipe;
}

ClassRecipe funnel(ClassFields& fields, const FileParts&) {
  const auto unknown = fields.token("unk_token", plain("<unk>"));
  const auto sep = fields.token("sep_token", plain("<sep>"));
  fields.token("pad_token", plain("<pad>"));
  const auto cls = fields.token("cls_token", plain("<cls>"));
  fields.token("mask_token", plain("<mask>"));
  fields.token("bos_token", plain("<s>"));
  fields.token("eos_token", plain("</s>"));
  auto recipe = word_pieces(fields, unknown);
  recipe.normalizer = bert_normalizer(fields, fields.flag("clean_text", true));
  recipe.post_processor = around_texts(cls, sep, 2);
  return recipe;
}

ClassRecipe roberta(ClassFields& fields, const FileParts&) {
  take_fairseq_tokens(fields, plain("<mask>"));
  const bool prefix = fields.flag("add_prefix_space", false);
  auto recipe = byte_level_recipe(prefix);
  recipe.post_processor = roberta_processing(fields.text("cls_token"), fields.text("sep_token"),
                                             fields.flag("trim_offsets", true), prefix);
  return recipe;
}

ClassRecipe blenderbot(ClassFields& fields, const FileParts&) {
  auto mask_token = mask("<mask>");
  mask_token.normalized = false;
  take_fairseq_tokens(fields, mask_token);
  return byte_level_recipe(fields.flag("add_prefix_space", true));
}

ClassRecipe deberta(ClassFields& fields, const FileParts&) {
  fields.token("bos_token", plain("[CLS]"));
  fields.token("eos_token", plain("[SEP]"));
  fields.token("unk_token", plain("[UNK]"));
  const auto sep = fields.token("sep_token", plain("[SEP]"));
  fields.token("pad_token", plain("[PAD]"));
  const auto cls = fields.token("cls_token", plain("[CLS]"));
  fields.token("mask_token", plain("[MASK]"));
  auto recipe = byte_level_recipe(fields.flag("add_prefix_space", false));
  recipe.post_processor = with_two_between(cls, sep);
  recipe.inputs = {"input_ids", "attention_mask", "token_type_ids"};
  return recipe;
}

ClassRecipe gpt2(ClassFields& fields, const FileParts&) {
  take_end_of_text(fields);
  fields.token("pad_token", {});
  return byte_level_recipe(fields.flag("add_prefix_space", false));
}

ClassRecipe gpt_neox(ClassFields& fields, const FileParts&) {
  take_end_of_text(fields);
  fields.token("pad_token", plain("<|padding|>"));
  auto recipe = byte_level_recipe(fields.flag("add_prefix_space", false));
  recipe.normalizer = part("NFC");
  recipe.sets_bos_and_eos = true;
  return recipe;
}

ClassRecipe qwen2(ClassFields& fields, const FileParts&) {
  return qwen(
      fields,
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

ClassRecipe qwen3_5(ClassFields& fields, const FileParts&) {
  return qwen(
      fields,
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

ClassRecipe cohere(ClassFields& fields, const FileParts&) {
  fields.token("unk_token", plain("<UNK>"));
  fields.token("bos_token", plain("<BOS_TOKEN>"));
  fields.token("eos_token", plain("<|END_OF_TURN_TOKEN|>"));
  fields.token("pad_token", plain("<PAD>"));
  fields.token("cls_token", plain("<CLS>"));
  fields.token("sep_token", plain("<SEP>"));
  fields.token("mask_token", plain("<MASK_TOKEN>"));
  auto recipe = byte_level_recipe(true);
  recipe.normalizer = part("NFC");
  recipe.pre_tokenizer =
      sequence_of("pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}},
                                    byte_level_part(fields.flag("add_prefix_space", false))});
  recipe.adds_again = true;
  recipe.pads_left = true;
  return recipe;
}

}  // namespace lockstep::tokenizer::recipe
