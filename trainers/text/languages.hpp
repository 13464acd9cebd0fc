#pragma once

#include <string>

#include "lockstep/core/options.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"

namespace lockstep::models {
class Seq2SeqLMImpl;
}

namespace texts {

/// The flags --src-lang, --tgt-lang and --forced-bos-token of the programs that translate; empty: not given.
struct Languages {
  std::string src_lang;
  std::string tgt_lang;
  std::string forced_bos_token;

  bool languages_are_given() const {
    return !src_lang.empty() || !tgt_lang.empty() || !forced_bos_token.empty();
  }
};

const lockstep::OptionTable<Languages>& language_table();

/// What the flags replace in the files of a tokenizer.
lockstep::tokenizer::PretrainedOptions pretrained_options(const Languages& languages);

/// Throws UsageError, naming the flags, if the tokenizer in `path` has languages, but neither the flags nor
/// its files name both; DataError if it has no such --forced-bos-token.
void check_languages(const lockstep::Tokenizer& tokenizer, const Languages& languages,
                     const std::string& path);

/// Makes the model begin its translations with the tokenizer's target language, also after save_pretrained():
/// mBART by the decoder's first input, the others by the first token that they write. No effect on a
/// tokenizer without languages, unless there is a --forced-bos-token.
void set_languages(lockstep::models::Seq2SeqLMImpl& model, const lockstep::Tokenizer& tokenizer,
                   const Languages& languages);

}  // namespace texts
