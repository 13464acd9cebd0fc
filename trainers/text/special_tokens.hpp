#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "lockstep/train/trainer.hpp"

namespace texts {

/// How to load a tokenizer whose eos_token is `eos_token`, or its own if that is empty: trl's
/// SFTConfig.eos_token.
lockstep::tokenizer::PretrainedOptions with_eos_token(const std::string& eos_token);

/// Throws UsageError if `eos_token` is neither empty nor one of the tokens of `tokenizer`, a path, that are
/// below `vocab_size`, the model's.
void check_eos_token(const std::string& eos_token, const std::string& tokenizer, std::int64_t vocab_size);

/// The tokens of a tokenizer by which a model's texts begin, end and are padded.
struct SpecialTokens {
  std::optional<std::int64_t> bos, eos, pad;
};

/// Those of `tokenizer`; with `pads_with_eos`, the padding of one that has none is its eos_token, as in trl.
SpecialTokens special_tokens_of(const lockstep::Tokenizer& tokenizer, bool pads_with_eos);

/// Gives config.json and generation_config.json in the output_dir the tokens where they differ, as
/// transformers' Trainer does (align_special_tokens): what is trained to end with the tokenizer's eos_token
/// would otherwise not stop there. The generation settings keep the tokens that ended a text before, behind
/// it. The main process does it, and says what has changed. The folder of an adapter has no configuration:
/// with `adapted`, its model's folder, nothing is written, and a warning says what does not end its texts.
void save_special_tokens(const lockstep::Trainer& trainer, const SpecialTokens& tokens,
                         const std::string& adapted = {});

/// Makes `eos_token`, if it is not empty, that of the tokenizer in the output_dir. The main process does it.
void save_eos_token(const lockstep::Trainer& trainer, const std::string& eos_token);

}  // namespace texts
