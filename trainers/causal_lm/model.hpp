#pragma once

#include <memory>
#include <string>

#include "lockstep/data/tokenizer.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"

/// The model that the options name, or a new one for the tokenizer. *Local*. Throws DataError for files that
/// do not fit, UsageError for sizes that do not.
lockstep::models::Gpt2LMHeadModel make_model(const Options& options, const lockstep::Tokenizer& tokenizer);

/// Tokens in a block: what the options say, or what the model takes. Throws UsageError for more than that.
std::int64_t block_size_of(const Options& options, const lockstep::models::Gpt2Config& config);

/// Blocks become "logits" [rows, tokens, vocabulary].
std::shared_ptr<lockstep::ModelAdapter> adapt(const lockstep::models::Gpt2LMHeadModel& model);

/// The sum over the tokens and their number, so that every token weighs the same on any number of ranks.
lockstep::Loss token_loss(const lockstep::Batch& outputs, const lockstep::Batch& batch);

/// The share of tokens that the model would have chosen itself.
std::shared_ptr<lockstep::EvaluationMetrics> token_accuracy();

/// A text that the model writes, behind the prompt. *Local*.
std::string sample(lockstep::models::Gpt2LMHeadModel model, const lockstep::Tokenizer& tokenizer,
                   const Options& options, const at::Device& device);
