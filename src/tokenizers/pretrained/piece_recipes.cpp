#include "tokenizers/pretrained/piece_recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizers/pretrained/languages.hpp"

namespace lockstep::tokenizer::recipe {
namespace {

/// Llama's decoder; `strips` removes the blank that was prepended.
Json bytes_and_blanks(bool strips) {
  Json parts = {replace_text(kVisibleBlank, " "), part("ByteFallback"), part("Fuse")};
  if (strips) parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return sequence_of("decoders", std::move(parts));
}

/// What a class adds to the vocabulary for its languages, unless the files name their own tokens.
std::vector<GivenToken> language_tokens(const ClassFields& fields,
                                        const std::vector<std::string>& languages) {
  std::vector<GivenToken> tokens;
  if (const auto given = fields.node().find("additional_special_tokens")) {
    for (const auto& token : given->elements()) tokens.push_back(read_given_token(token));
  }
  const auto is_there = [&](const std::string& language) {
    return std::any_of(tokens.begin(), tokens.end(),
                       [&](const auto& token) { return token.content == language; });
  };
  for (const auto& language : languages) {
    if (!is_there(language)) tokens.push_back(plain(language.c_str()));
  }
  return tokens;
}

/// Texts with pieces before and behind them; a pair's texts follow each other, all of type 0.
Json prefix_and_suffix(const std::vector<std::string>& before, const std::vector<std::string>& behind,
                       const IdOf& id) {
  std::vector<TemplatePiece> single;
  for (const auto& token : before) single.push_back({token});
  single.push_back({"$A"});
  auto pair = single;
  pair.push_back({"$B"});
  for (const auto& token : behind) single.push_back({token}), pair.push_back({token});
  return template_processing(single, pair, id);
}

/// ALBERT's and XLNet's: quotes, accents and case.
Json quotes_and_accents(const FileParts& file, bool strip_accents, bool lowercase) {
  Json parts = {replace_text("``", "\""), replace_text("''", "\"")};
  if (strip_accents) parts.push_back(part("NFKD")), parts.push_back(part("StripAccents"));
  if (lowercase) parts.push_back(part("Lowercase"));
  return and_table(file, std::move(parts));
}

Json blanks_and_nfc() {
  return {replace_matches("\\s{2,}|[\\n\\r\\t]", " "), part("NFC"), strip_part(false, true)};
}

}  // namespace

ClassRecipe llama(ClassFields& fields, const FileParts&) {
  fields.token("bos_token", plain("<s>"));
  fields.token("eos_token", plain("</s>"));
  fields.token("unk_token", plain("<unk>"));
  const bool prefix = fields.flag("add_prefix_space", true);
  const char* scheme = !prefix ? "never" : fields.flag("legacy", false) ? "always" : "first";
  return {.model = "BPE",
          .model_fields = {{"fuse_unk", true}, {"byte_fallback", true}},
          .pre_tokenizer = metaspace_part(scheme, false),
          .decoder = bytes_and_blanks(prefix),
          .pads_left = true};
}

ClassRecipe code_llama(ClassFields& fields, const FileParts&) {
  const auto unknown = fields.token("unk_token", plain("<unk>"));
  fields.token("bos_token", plain("<s>"));
  fields.token("eos_token", plain("</s>"));
  ClassRecipe recipe{.model = "BPE",
                     .model_fields = {{"fuse_unk", true}, {"byte_fallback", true}, {"unk_token", unknown}},
                     .decoder = bytes_and_blanks(true),
                     .sets_bos_and_eos = true,
                     .add_bos = true,
                     .pads_left = true};
  if (const auto given = fields.node().find("additional_special_tokens")) {
    for (const auto& token : given->elements()) recipe.extra_tokens.push_back(read_given_token(token));
  }
  for (const auto& [name, content] :
       {std::pair("prefix_token", "\u2581<PRE>"), std::pair("middle_token", "\u2581<MID>"),
        std::pair("suffix_token", "\u2581<SUF>"), std::pair("eot_token", "\u2581<EOT>"),
        std::pair("fill_token", "<FILL_ME>")}) {
    recipe.extra_tokens.push_back(plain(content));
    fields.token(name, plain(content));
  }
  recipe.pre_tokenizer = metaspace_part(fields.flag("add_prefix_space", true) ? "first" : "never", false);
  return recipe;
}

ClassRecipe gemma(ClassFields& fields, const FileParts&) {
  const auto unknown = fields.token("unk_token", plain("<unk>"));
  fields.token("bos_token", plain("<bos>"));
  fields.token("eos_token", plain("<eos>"));
  fields.token("pad_token", plain("<pad>"));
  fields.token("mask_token", plain("<mask>"));
  return {.model = "BPE",
          .model_fields = {{"fuse_unk", true}, {"byte_fallback", true}, {"unk_token", unknown}},
          .normalizer = replace_text(" ", kVisibleBlank),
          .pre_tokenizer = {{"type", "Split"},
                            {"pattern", {{"String", " "}}},
                            {"behavior", "MergedWithPrevious"},
                            {"invert", false}},
          .decoder = bytes_and_blanks(false),
          .pads_left = true};
}

ClassRecipe herbert(ClassFields& fields, const FileParts&) {
  const auto cls = fields.token("cls_token", plain("<s>"));
  const auto unknown = fields.token("unk_token", plain("<unk>"));
  fields.token("pad_token", plain("<pad>"));
  fields.token("mask_token", plain("<mask>"));
  const auto sep = fields.token("sep_token", plain("</s>"));
  return {.model = "BPE",
          .model_fields = {{"unk_token", unknown}, {"end_of_word_suffix", "</w>"}},
          .normalizer = {{"type", "BertNormalizer"},
                         {"clean_text", true},
                         {"handle_chinese_chars", true},
                         {"strip_accents", false},
                         {"lowercase", false}},
          .pre_tokenizer = part("BertPreTokenizer"),
          .decoder = {{"type", "BPEDecoder"}, {"suffix", "</w>"}},
          .post_processor = [=](const IdOf&, const std::string&) {
            return Json{{"type", "BertProcessing"}, {"sep", {sep, 2}}, {"cls", {cls, 0}}};
          }};
}

ClassRecipe nllb(ClassFields& fields, const FileParts& file) {
  auto mask_token = mask("<mask>");
  mask_token.normalized = true;
  mask_token.special = true;
  take_fairseq_tokens(fields, mask_token);
  ClassRecipe recipe{.model = "BPE",
                     .model_fields = {{"unk_token", fields.text("unk_token")}, {"fuse_unk", true}},
                     .pre_tokenizer = metaspace_part("always"),
                     .decoder = metaspace_part("always"),
                     .default_language = "eng_Latn"};
  if (!file.charsmap.is_null())
    recipe.normalizer = table_and(file, Json::array({replace_matches(" {2,}", " ")}));
  const bool own = fields.node().find("additional_special_tokens").has_value();
  recipe.extra_tokens = language_tokens(fields, own ? std::vector<std::string>() : nllb_languages());
  recipe.extra_if_null = true;
  recipe.post_processor = [eos = fields.text("eos_token"), legacy = fields.flag("legacy_behaviour", false)](
                              const IdOf& id, const std::string& language) {
    return legacy ? prefix_and_suffix({}, {eos, language}, id) : prefix_and_suffix({language}, {eos}, id);
  };
  return recipe;
}

ClassRecipe mbart(ClassFields& fields, const FileParts&) {
  take_fairseq_tokens(fields, mask("<mask>"));
  auto recipe = unigram(3);
  recipe.pre_tokenizer = words_with_blanks(true);
  recipe.decoder = metaspace_part("always");
  recipe.default_language = "en_XX";
  recipe.extra_tokens = language_tokens(fields, mbart_languages());
  recipe.post_processor = [eos = fields.text("eos_token")](const IdOf& id, const std::string& language) {
    return prefix_and_suffix({}, {eos, language}, id);
  };
  return recipe;
}

ClassRecipe mbart50(ClassFields& fields, const FileParts& file) {
  fields.token("eos_token", plain("</s>"));
  fields.token("sep_token", plain("</s>"));
  fields.token("cls_token", plain("<s>"));
  fields.token("unk_token", plain("<unk>"));
  fields.token("pad_token", plain("<pad>"));
  fields.token("mask_token", mask("<mask>"));
  auto recipe = unigram(3);
  recipe.normalizer = table_and(file, Json::array({replace_matches(" {2,}", " ")}));
  recipe.pre_tokenizer = recipe.decoder = metaspace_part("always");
  recipe.default_language = "en_XX";
  recipe.extra_tokens = language_tokens(fields, mbart50_languages());
  recipe.post_processor = [eos = fields.text("eos_token")](const IdOf& id, const std::string& language) {
    return prefix_and_suffix({language}, {eos}, id);
  };
  return recipe;
}

ClassRecipe t5(ClassFields& fields, const FileParts& file) {
  fields.token("eos_token", plain("</s>"));
  fields.token("unk_token", plain("<unk>"));
  fields.token("pad_token", plain("<pad>"));
  auto recipe = unigram(2);
  recipe.normalizer = table_alone(file);
  recipe.pre_tokenizer = words_with_blanks(true);
  recipe.decoder = metaspace_part("always");
  const auto count = fields.node().number("extra_ids", 100);
  const auto is_sentinel = [](const GivenToken& token) {
    return token.content.find("<extra_id_") != std::string::npos;
  };
  recipe.extra_tokens = language_tokens(fields, {});
  const auto given = static_cast<std::uint32_t>(std::ranges::count_if(recipe.extra_tokens, is_sentinel));
  if (given > 0 && count > 0 && given != count) {
    fields.node().fail(
        fmt::format("extra_ids is {}, but additional_special_tokens has {} of them", count, given));
  }
  for (std::uint32_t number = 0; given == 0 && number < count; ++number) {
    recipe.extra_tokens.push_back({.content = fmt::format("<extra_id_{}>", number)});
  }
  recipe.post_processor = [](const IdOf& id, const std::string&) {
    return template_processing({{"$A"}, {"</s>"}}, {{"$A"}, {"</s>"}, {"$B"}, {"</s>"}}, id);
  };
  return recipe;
}

ClassRecipe xlm_roberta(ClassFields& fields, const FileParts& file) {
  take_fairseq_tokens(fields, plain("<mask>"));
  const bool prefix = fields.flag("add_prefix_space", true);
  auto recipe = unigram(3);
  recipe.normalizer = table_alone(file);
  recipe.pre_tokenizer = words_with_blanks(prefix);
  recipe.decoder = metaspace_part(scheme_of(prefix));
  recipe.post_processor = with_two_between(fields.text("bos_token"), fields.text("eos_token"));
  return recipe;
}

ClassRecipe camembert(ClassFields& fields, const FileParts& file) {
  auto mask_token = mask("<mask>");
  mask_token.special = true;
  take_fairseq_tokens(fields, mask_token);
  const bool prefix = fields.flag("add_prefix_space", true);
  auto recipe = unigram(index_of(file, fields.text("unk_token"), 0, false));
  recipe.normalizer = table_alone(file);
  recipe.pre_tokenizer = words_with_blanks(prefix);
  recipe.decoder = metaspace_part(scheme_of(prefix));
  recipe.extra_tokens = language_tokens(fields, {});
  if (recipe.extra_tokens.empty()) {
    for (const char* token : {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"})
      recipe.extra_tokens.push_back(plain(token));
  }
  recipe.post_processor = with_two_between(fields.text("bos_token"), fields.text("eos_token"));
  return recipe;
}

ClassRecipe albert(ClassFields& fields, const FileParts& file) {
  fields.token("bos_token", plain("[CLS]"));
  fields.token("eos_token", plain("[SEP]"));
  fields.token("unk_token", plain("<unk>"));
  fields.token("sep_token", plain("[SEP]"));
  fields.token("pad_token", plain("<pad>"));
  fields.token("cls_token", plain("[CLS]"));
  fields.token("mask_token", plain("[MASK]"));
  const bool prefix = fields.flag("add_prefix_space", true);
  auto recipe = unigram(1);
  recipe.normalizer =
      quotes_and_accents(file, !fields.flag("keep_accents", false), fields.flag("do_lower_case", true));
  recipe.pre_tokenizer = words_with_blanks(prefix);
  recipe.decoder = metaspace_part(scheme_of(prefix));
  recipe.post_processor = around_texts("[CLS]", "[SEP]");
  recipe.file_post_processor_first = true;
  return recipe;
}

ClassRecipe xlnet(ClassFields& fields, const FileParts& file) {
  fields.token("bos_token", plain("<s>"));
  fields.token("eos_token", plain("</s>"));
  fields.token("unk_token", plain("<unk>"));
  const auto sep = fields.token("sep_token", plain("<sep>"));
  fields.token("pad_token", plain("<pad>"));
  const auto cls = fields.token("cls_token", plain("<cls>"));
  fields.token("mask_token", mask("<mask>"));
  auto recipe = unigram(fields.node().number("unk_id", 0));
  recipe.normalizer = quotes_and_accents(file, true, fields.flag("do_lower_case", false));
  recipe.pre_tokenizer = words_with_blanks(true);
  recipe.decoder = metaspace_part("always");
  recipe.extra_tokens = language_tokens(fields, {});
  if (recipe.extra_tokens.empty()) recipe.extra_tokens = {plain("<eop>"), plain("<eod>")};
  recipe.post_processor = [=](const IdOf& id, const std::string&) {
    return template_processing({{"$A"}, {sep}, {cls, 2}}, {{"$A"}, {sep}, {"$B", 1}, {sep, 1}, {cls, 2}}, id);
  };
  recipe.pads_left = true;
  return recipe;
}

ClassRecipe deberta_v2(ClassFields& fields, const FileParts& file) {
  fields.token("bos_token", plain("[CLS]"));
  fields.token("eos_token", plain("[SEP]"));
  const auto unknown = fields.token("unk_token", plain("[UNK]"));
  const auto sep = fields.token("sep_token", plain("[SEP]"));
  fields.token("pad_token", plain("[PAD]"));
  const auto cls = fields.token("cls_token", plain("[CLS]"));
  fields.token("mask_token", plain("[MASK]"));
  auto recipe = unigram(index_of(file, unknown, fields.node().number("unk_id", 1), true));
  auto normalizers = blanks_and_nfc();
  if (fields.flag("do_lower_case", false)) normalizers.insert(normalizers.begin(), part("Lowercase"));
  recipe.normalizer = sequence_of("normalizers", std::move(normalizers));
  const auto* scheme = fields.flag("add_prefix_space", true) ? "always" : "first";
  Json words = Json::array();
  if (fields.flag("split_by_punct", false))
    words.push_back({{"type", "Punctuation"}, {"behavior", "Isolated"}});
  words.push_back(metaspace_part(scheme));
  recipe.pre_tokenizer = sequence_of("pretokenizers", std::move(words));
  recipe.decoder = metaspace_part(scheme);
  recipe.post_processor = around_texts(cls, sep);
  recipe.inputs = {"input_ids", "attention_mask", "token_type_ids"};
  return recipe;
}

ClassRecipe barthez(ClassFields& fields, const FileParts&) {
  take_fairseq_tokens(fields, mask("<mask>"));
  const bool prefix = fields.flag("add_prefix_space", true);
  auto recipe = unigram(3);
  recipe.normalizer = sequence_of("normalizers", blanks_and_nfc());
  recipe.pre_tokenizer = recipe.decoder = metaspace_part(scheme_of(prefix));
  return recipe;
}

ClassRecipe big_bird(ClassFields& fields, const FileParts& file) {
  const auto given = [](const char* content) { return GivenToken{.content = content, .is_text = false}; };
  const auto unknown = fields.token("unk_token", given("<unk>"));
  fields.token("bos_token", given("<s>"));
  fields.token("eos_token", given("</s>"));
  fields.token("pad_token", given("<pad>"));
  const auto sep = fields.token("sep_token", given("[SEP]"));
  fields.token("mask_token", mask("[MASK]"));
  const auto cls = fields.token("cls_token", given("[CLS]"));
  const bool prefix = fields.flag("add_prefix_space", true);
  auto recipe = unigram(index_of(file, unknown, 100, true));
  recipe.normalizer =
      sequence_of("normalizers", {strip_part(false, false), replace_matches(" {2,}", kVisibleBlank)});
  recipe.pre_tokenizer = recipe.decoder = metaspace_part(scheme_of(prefix));
  recipe.post_processor = around_texts(cls, sep);
  return recipe;
}

ClassRecipe pegasus(ClassFields& fields, const FileParts& file) {
  fields.token("pad_token", plain("<pad>"));
  const auto eos = fields.token("eos_token", plain("</s>"));
  const auto unknown = fields.token("unk_token", plain("<unk>"));
  fields.token("mask_token", plain("<mask_2>"));
  // Not one of the special tokens that have names.
  const auto sentence = fields.has("mask_token_sent") && !fields.node().find("mask_token_sent")
                            ? std::string()
                            : fields.node().text("mask_token_sent", "<mask_1>");
  auto recipe = unigram(index_of(file, unknown, 1, true));
  recipe.normalizer =
      file.charsmap.is_null()
          ? sequence_of("normalizers", {replace_matches("\\n", " "), replace_matches(" {2,}", " ")})
          : table_and(file, Json::array({replace_matches(" {2,}", " ")}));
  recipe.pre_tokenizer = recipe.decoder = metaspace_part("always");
  if (!sentence.empty()) recipe.extra_tokens.push_back(plain(sentence.c_str()));
  const auto offset = fields.node().number("offset", 103);
  for (std::uint32_t number = 2; number < offset; ++number) {
    recipe.extra_tokens.push_back({.content = fmt::format("<unk_{}>", number)});
  }
  recipe.post_processor = [=](const IdOf& id, const std::string&) {
    return prefix_and_suffix({}, {eos}, id);
  };
  return recipe;
}

ClassRecipe rembert(ClassFields& fields, const FileParts& file) {
  fields.token("bos_token", plain("[CLS]"));
  fields.token("eos_token", plain("[SEP]"));
  fields.token("unk_token", plain("<unk>"));
  const auto sep = fields.token("sep_token", plain("[SEP]"));
  fields.token("pad_token", plain("<pad>"));
  const auto cls = fields.token("cls_token", plain("[CLS]"));
  fields.token("mask_token", plain("[MASK]"));
  const bool prefix = fields.flag("add_prefix_space", true);
  auto recipe = unigram(2);
  Json parts = {replace_text("``", "\""), replace_text("''", "\""), replace_matches(" {2,}", " ")};
  if (!fields.flag("keep_accents", true))
    parts.push_back(part("NFKD")), parts.push_back(part("StripAccents"));
  if (fields.flag("do_lower_case", false)) parts.push_back(part("Lowercase"));
  recipe.normalizer = and_table(file, std::move(parts));
  recipe.pre_tokenizer = recipe.decoder = metaspace_part(scheme_of(prefix));
  recipe.post_processor = around_texts(cls, sep);
  recipe.adds_again = true;
  return recipe;
}

}  // namespace lockstep::tokenizer::recipe
