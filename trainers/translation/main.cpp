// Trains an encoder-decoder on pairs of texts.

#include <algorithm>

#include "lockstep/core/prepare.hpp"
#include "lockstep/core/program.hpp"
#include "lockstep/data/tokenize.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/train/metrics.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"
#include "pairs.hpp"
#include "text/program.hpp"
#include "text/tokens.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::Tokenizer;
using lockstep::Trainer;
using lockstep::models::BartConfig;
using lockstep::models::BartForConditionalGeneration;
namespace models = lockstep::models;

void complete(Options& options) {
  if (options.tokenizer.empty()) options.tokenizer = options.model;
  if (options.tokenizer.empty())
    throw lockstep::UsageError("--tokenizer is missing: a new model has none of its own.");
}

std::int64_t special(const Tokenizer& tokenizer, const char* name, const Options& options) {
  if (const auto id = tokenizer.token_to_id(name)) return *id;
  throw lockstep::DataError("the tokenizer " + options.tokenizer + " has no token " + name +
                            ": a new model needs <s>, <pad> and </s>.");
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
  throw lockstep::UsageError("--max-source-length and --max-target-length must be at most " +
                             std::to_string(config.max_position_embeddings) +
                             ", what the model takes, but one is " + std::to_string(longest) + ".");
}

BartForConditionalGeneration make_model(const Options& options, const Tokenizer& tokenizer) {
  torch::manual_seed(options.seed);
  if (options.model.empty()) return BartForConditionalGeneration(new_config(options, tokenizer));
  const auto config = BartConfig::from_file(options.model);
  check_lengths(config, options);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  return models::load_bart(options.model);
}

std::shared_ptr<lockstep::ModelAdapter> adapt(const BartForConditionalGeneration& model) {
  return lockstep::adapt_model(model, [config = model->config()](auto& bart, const Batch& batch) {
    const at::Tensor decoder_ids = models::shift_right(batch["labels"], config);
    return Batch{{"logits", bart(batch["input_ids"], batch["attention_mask"], decoder_ids)}};
  });
}

/// After the tokens before them: the decoder's inputs are the labels, shifted.
texts::Predicted predicted(const Batch& outputs, const Batch& batch) {
  return {outputs["logits"], batch["labels"]};
}

lockstep::Loss loss(const Batch& outputs, const Batch& batch) {
  return texts::token_loss(predicted(outputs, batch));
}

std::vector<std::int64_t> row_of(const at::Tensor& tokens, std::int64_t row) {
  const at::Tensor ids = tokens[row].cpu().contiguous();
  const auto* first = ids.const_data_ptr<std::int64_t>();
  return {first, first + ids.numel()};
}

/// What the model makes of the texts of a batch, and what it should have made of them.
struct Translations {
  std::vector<std::string> made, wanted;
};

Translations translate(BartForConditionalGeneration& model, const Tokenizer& tokenizer, const Batch& batch,
                       const Options& options) {
  const at::Tensor tokens =
      models::generate(model, batch["input_ids"], batch["attention_mask"],
                       {.max_new_tokens = options.max_target_length, .num_beams = options.num_beams});
  const at::Tensor labels = batch["labels"].clamp_min(0);
  Translations texts;
  for (std::int64_t row = 0; row < batch.size(); ++row) {
    texts.made.push_back(tokenizer.decode(row_of(tokens, row)));
    auto wanted = row_of(labels, row);
    wanted.resize(static_cast<std::size_t>((batch["labels"][row] >= 0).sum().item<std::int64_t>()));
    texts.wanted.push_back(tokenizer.decode(wanted));
  }
  return texts;
}

/// Translates the validation texts, each rank its share, and prints their BLEU.
void evaluate_translations(Trainer& trainer, BartForConditionalGeneration& model, const Tokenizer& tokenizer,
                           const Pairs& pairs, const Options& options) {
  const Accelerator& accelerator = trainer.accelerator();
  const std::int64_t size = options.per_device_eval_batch_size;
  const auto ranks = static_cast<std::int64_t>(accelerator.num_processes());
  lockstep::metrics::Bleu bleu;
  model->eval();
  for (std::int64_t begin = accelerator.process_index() * size; begin < pairs.validation->size();
       begin += ranks * size) {
    std::vector<std::int64_t> rows;
    for (auto row = begin; row < std::min(begin + size, pairs.validation->size()); ++row) rows.push_back(row);
    const std::vector<lockstep::SampleContext> contexts(rows.size());
    const Batch batch = pairs.validation->get_batch(rows, contexts).to(accelerator.device());
    const Translations texts = translate(model, tokenizer, batch, options);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      bleu.update(texts.made[i], texts.wanted[i]);
      if (rows[i] < options.samples) accelerator.print("'", texts.made[i], "' for '", texts.wanted[i], "'");
    }
  }
  accelerator.print("bleu ", bleu.of_all_ranks(accelerator.process_group()).compute());
}

int train(const Accelerator& accelerator, const Options& options) {
  const Tokenizer tokenizer = lockstep::load_tokenizer(options.tokenizer);
  BartForConditionalGeneration model = make_model(options, tokenizer);
  const Pairs pairs = load_pairs(options, model->config().pad_token_id,
                                 lockstep::job_ranks(accelerator.world(), accelerator.process_group()));
  // Under 'lockstep prepare' the data were all that was asked for.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  Trainer trainer(accelerator, options,
                  {.model = adapt(model),
                   .train_dataset = pairs.train,
                   .eval_dataset = pairs.validation,
                   .compute_loss = loss,
                   .metrics = texts::token_accuracy("token_accuracy", predicted)});
  accelerator.print("training on ", pairs.train->size(), " pairs; ", accelerator.num_processes(),
                    " rank(s) on ", accelerator.device());
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  if (pairs.validation) {
    for (const auto& [name, value] : trainer.evaluate()) accelerator.print(name, " ", value);
    evaluate_translations(trainer, model, tokenizer, pairs, options);
  }
  texts::save(trainer, model, options.tokenizer);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("translation",
                               [&] { return texts::run(argc, argv, option_table(), complete, train); });
}
