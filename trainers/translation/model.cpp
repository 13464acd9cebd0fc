#include "model.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "text/files.hpp"
#include "text/program.hpp"
#include "text/script.hpp"

namespace {

using lockstep::Batch;
using lockstep::Tokenizer;
using lockstep::Trainer;
using lockstep::models::BartConfig;
using lockstep::models::BartForConditionalGeneration;
namespace models = lockstep::models;

std::int64_t special(const Tokenizer& tokenizer, const char* name, const Options& options) {
  if (const auto id = tokenizer.token_to_id(name)) return *id;
  throw lockstep::DataError("the tokenizer " + options.tokenizer + " has no token " + name +
                            ": <s>, <pad> and </s> are needed where the model says nothing of them.");
}

BartConfig new_config(const Options& options, const Tokenizer& tokenizer) {
  const std::int64_t end = special(tokenizer, "</s>", options);
  return {.vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size()),
          .max_position_embeddings = std::max(options.max_source_length, options.max_target_length + 1),
          .d_model = options.d_model,
          .encoder_layers = options.layers,
          .encoder_attention_heads = options.heads,
          .encoder_ffn_dim = 4 * options.d_model,
          .decoder_layers = options.layers,
          .decoder_attention_heads = options.heads,
          .decoder_ffn_dim = 4 * options.d_model,
          .pad_token_id = special(tokenizer, "<pad>", options),
          .bos_token_id = special(tokenizer, "<s>", options),
          .eos_token_id = end,
          .decoder_start_token_id = end};
}

void check_lengths(const BartConfig& config, const Options& options) {
  const std::int64_t longest = std::max(options.max_source_length, options.max_target_length);
  if (longest <= config.max_position_embeddings) return;
  throw lockstep::UsageError(fmt::format(
      "--max-source-length and --max-target-length must be at most {}, what the model takes, but one is {}.",
      config.max_position_embeddings, longest));
}

BartForConditionalGeneration make_bart(const Options& options, const Tokenizer& tokenizer) {
  torch::manual_seed(options.seed);
  if (options.model.empty()) return BartForConditionalGeneration(new_config(options, tokenizer));
  const auto config = BartConfig::from_file(options.model);
  check_lengths(config, options);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  return models::load_bart(options.model);
}

std::vector<at::Tensor> inputs_of(const Batch& batch, const BartConfig& config) {
  return {batch["input_ids"], batch["attention_mask"], models::shift_right(batch["labels"], config)};
}

/// The decoder's inputs begin like those of a new model.
TranslationModel make_script(const Options& options, const Tokenizer& tokenizer) {
  const BartConfig config = new_config(options, tokenizer);
  const at::Tensor source = texts::trial_tokens(options.max_source_length);
  const at::Tensor target = texts::trial_tokens(options.max_target_length);
  auto script = texts::load_script(options.model, {source, source, target},
                                   {2, options.max_target_length, config.vocab_size});
  auto adapter =
      texts::adapt_script(script, [config](const Batch& batch) { return inputs_of(batch, config); });
  const auto save = [script, &options](const Trainer& trainer) {
    texts::save_script(trainer, script, options.tokenizer);
  };
  return {std::move(adapter), config.pad_token_id, save, nullptr};
}

}  // namespace

TranslationModel make_model(const Options& options, const Tokenizer& tokenizer) {
  if (texts::is_script(options.model)) return make_script(options, tokenizer);
  BartForConditionalGeneration model = make_bart(options, tokenizer);
  auto adapter = lockstep::wrap_model(model, [config = model->config()](auto& bart, const Batch& batch) {
    const auto inputs = inputs_of(batch, config);
    return Batch{{"logits", bart(inputs[0], inputs[1], inputs[2])}};
  });
  const auto save = [model, &options](const Trainer& trainer) {
    texts::save(trainer, model, options.tokenizer);
  };
  const auto generate = [model, &options](const Batch& batch) mutable {
    model->eval();
    return models::generate(model, batch["input_ids"], batch["attention_mask"],
                            {.max_new_tokens = options.max_target_length, .num_beams = options.num_beams});
  };
  return {std::move(adapter), model->config().pad_token_id, save, generate};
}
