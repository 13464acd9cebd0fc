#include "languages.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained_model.hpp"

namespace texts {
namespace {

/// The id of a language's token. The tokenizer has checked that it has its languages.
std::int64_t id_of_language(const lockstep::Tokenizer& tokenizer, const std::string& language) {
  return tokenizer.token_to_id(language).value();
}

}  // namespace

const lockstep::OptionTable<Languages>& language_table() {
  static const auto table =
      lockstep::OptionTable<Languages>("languages", "The languages of a translation.")
          .section("languages")
          .add(
              "src-lang", &Languages::src_lang,
              "Language of the texts, as the tokenizer writes it: eng_Latn (NLLB), en_XX (mBART). Needed for "
              "tokenizers of many languages.")
          .add("tgt-lang", &Languages::tgt_lang,
               "Language of the translations. They begin with it; see --forced-bos-token.")
          .add("forced-bos-token", &Languages::forced_bos_token,
               "First token of each translation. Default: the language --tgt-lang, for model families that "
               "begin with it.");
  return table;
}

lockstep::tokenizer::PretrainedOptions pretrained_options(const Languages& languages) {
  lockstep::tokenizer::PretrainedOptions options;
  if (!languages.src_lang.empty()) options.src_lang = languages.src_lang;
  if (!languages.tgt_lang.empty()) options.tgt_lang = languages.tgt_lang;
  return options;
}

void check_languages(const lockstep::Tokenizer& tokenizer, const Languages& languages,
                     const std::string& path) {
  const auto& settings = tokenizer.settings();
  if (!settings.src_lang.empty() && !settings.names_both_languages) {
    throw lockstep::UsageError(
        fmt::format("{} missing: the {} in {} is multilingual. Give the languages of the texts and of their "
                    "translations, written like {}.",
                    languages.src_lang.empty() && languages.tgt_lang.empty() ? "--src-lang and --tgt-lang are"
                    : languages.src_lang.empty()                             ? "--src-lang is"
                                                                             : "--tgt-lang is",
                    settings.tokenizer_class, path, settings.src_lang));
  }
  const auto& first = languages.forced_bos_token;
  if (first.empty() || tokenizer.token_to_id(first)) return;
  throw lockstep::DataError(
      fmt::format("--forced-bos-token: the tokenizer in {} has no token '{}'.", path, first));
}

void set_languages(lockstep::models::Seq2SeqLMImpl& model, const lockstep::Tokenizer& tokenizer,
                   const Languages& languages) {
  const auto& settings = tokenizer.settings();
  auto config = model.model_config();
  // mBART's texts end with their language, which becomes the decoder's first input; those of the others begin
  // with it.
  const bool ends_with_language = settings.tokenizer_class == "MBartTokenizer";
  if (settings.names_both_languages) {
    const auto language = id_of_language(tokenizer, settings.tgt_lang);
    (ends_with_language ? config.decoder_start_token_id : config.forced_bos_token_id) = language;
  }
  if (!languages.forced_bos_token.empty())
    config.forced_bos_token_id = id_of_language(tokenizer, languages.forced_bos_token);
  model.set_first_tokens(config.decoder_start_token_id, config.forced_bos_token_id);
}

}  // namespace texts
