#include "model.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "text/files.hpp"
#include "text/program.hpp"
#include "text/script.hpp"

namespace {

using lockstep::Batch;
using lockstep::Tokenizer;
using lockstep::Trainer;
using lockstep::models::AutoModelForSeq2SeqLM;
using lockstep::models::Seq2SeqLM;
namespace models = lockstep::models;

std::int64_t special(const Tokenizer& tokenizer, const char* name, const Options& options) {
  if (const auto id = tokenizer.token_to_id(name)) return *id;
  throw lockstep::DataError("the tokenizer " + options.tokenizer + " has no token " + name +
                            ": <s>, <pad> and </s> are needed if the model does not name others.");
}

/// The configuration of a new model.
models::ModelConfig new_config(const Options& options, const Tokenizer& tokenizer) {
  const std::int64_t end = special(tokenizer, "</s>", options);
  return {.model_type = options.model_type,
          .vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size()),
          .max_position_embeddings = std::max(options.max_source_length, options.max_target_length + 1),
          .pad_token_id = special(tokenizer, "<pad>", options),
          .bos_token_id = special(tokenizer, "<s>", options),
          .eos_token_id = end,
          .decoder_start_token_id = end};
}

void check_lengths(const models::ModelConfig& config, const Options& options) {
  const std::int64_t longest = std::max(options.max_source_length, options.max_target_length);
  if (longest <= config.max_position_embeddings) return;
  throw lockstep::UsageError(fmt::format(
      "--max-source-length and --max-target-length must be at most {}, what the model takes, but one is {}.",
      config.max_position_embeddings, longest));
}

/// Those of the evaluation; the rest is as the model's folder says.
models::GenerationConfig generation_of(const Options& options) {
  return {.max_new_tokens = options.max_target_length,
          .seed = options.seed,
          .num_beams = options.num_beams,
          .num_return_sequences = 1};
}

Seq2SeqLM make_seq2seq_lm(const Options& options, const Tokenizer& tokenizer) {
  torch::manual_seed(options.seed);
  if (options.model.empty()) {
    return AutoModelForSeq2SeqLM::from_config(new_config(options, tokenizer),
                                              {.hidden_size = options.d_model,
                                               .num_hidden_layers = options.layers,
                                               .num_attention_heads = options.heads});
  }
  const auto config = AutoModelForSeq2SeqLM::config_of(options.model);
  check_lengths(config, options);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  // Not only after the training.
  if (!options.validation_file.empty())
    static_cast<void>(models::generation_settings(options.model, generation_of(options)));
  return AutoModelForSeq2SeqLM::from_pretrained(options.model);
}

/// The decoder's inputs begin like those of a new model.
TranslationModel make_script(const Options& options, const Tokenizer& tokenizer) {
  const auto config = new_config(options, tokenizer);
  const at::Tensor source = texts::trial_tokens(options.max_source_length);
  const at::Tensor target = texts::trial_tokens(options.max_target_length);
  auto script = texts::load_script(options.model, {source, source, target},
                                   {2, options.max_target_length, config.vocab_size});
  const std::int64_t first = *config.decoder_start_token_id, padding = *config.pad_token_id;
  auto adapter = texts::adapt_script(script, [first, padding](const Batch& batch) -> std::vector<at::Tensor> {
    return {batch["input_ids"], batch["attention_mask"],
            models::shift_right(batch["labels"], first, padding)};
  });
  const auto save = [script, &options](const Trainer& trainer) {
    texts::save_script(trainer, script, options.tokenizer, options);
  };
  return {std::move(adapter), padding, save, nullptr};
}

}  // namespace

TranslationModel make_model(const Options& options, const Tokenizer& tokenizer) {
  if (texts::is_script(options.model)) return make_script(options, tokenizer);
  const Seq2SeqLM model = make_seq2seq_lm(options, tokenizer);
  texts::set_languages(*model.ptr(), tokenizer, options);
  const auto padding = model->model_config().pad_token_id;
  if (!padding)
    throw lockstep::DataError("config.json in " + options.model +
                              " has no pad_token_id, which batches need.");
  const auto save = [model, &options](const Trainer& trainer) {
    texts::save(trainer, model, options.tokenizer, options);
  };
  const auto generate = [model, &options](const Batch& batch) {
    model.ptr()->eval();
    return models::generate(model, batch["input_ids"], batch["attention_mask"], generation_of(options));
  };
  return {models::trainer_model(model), *padding, save, generate};
}
