// Trains an encoder of texts on pairs that belong together.

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "model.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "samples.hpp"
#include "scores.hpp"
#include "text/program.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::models::SentenceEncoder;

void complete(Options& options) {
  if (options.tokenizer.empty()) options.tokenizer = options.model;
}

/// The length that the folder says, if it is less than what the encoder takes.
std::int64_t usual_length(const SentenceEncoder& encoder, std::int64_t longest) {
  const auto length = encoder->config().max_seq_length;
  return length > 0 ? length : longest;
}

int train(const Accelerator& accelerator, const Options& options) {
  const lockstep::Tokenizer tokenizer = lockstep::load_tokenizer(options.tokenizer);
  torch::manual_seed(options.seed);
  auto init = accelerator.sharded_init();
  const auto encoder = lockstep::models::load_sentence_encoder(
      options.model, {.dtype = lockstep::models::dtype_of_name(options.dtype)});
  init.reset();
  const auto config = encoder->encoder()->model_config();
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  texts::check_lower_case(options.tokenizer, options.model, encoder->config().do_lower_case);
  const auto max_length =
      texts::choose_length("--max-length", options.max_length, config.max_position_embeddings,
                           usual_length(encoder, config.max_position_embeddings));
  const Samples samples =
      load_samples(options, {max_length, tokenizer.special_token_id("pad_token").value_or(0)},
                   lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  lockstep::TrainerComponents parts{.train_dataset = samples.train, .eval_dataset = samples.validation};
  const auto loss = loss_options(options);
  if (samples.validation)
    parts.compute_metrics = embedding_metrics(
        {.cosine = loss.cosine, .has_scores = samples.has_scores, .has_negatives = samples.has_negatives});
  ContrastiveTrainer trainer(accelerator, options, std::move(parts), encoder,
                             {.loss = loss, .mini_batch_size = options.mini_batch_size});
  if (!samples.prompts.empty()) accelerator.print(samples.prompts);
  trainer.add_callback(
      program_options::base_model_callback({{"--model", options.model}}, {options.output_dir}));
  accelerator.print("training on ", samples.train->size(), " rows of texts of at most ", max_length,
                    " tokens; ", accelerator.num_processes(), " rank(s) on ", accelerator.device());
  const auto output = trainer.train();
  if (output.preempted) return lockstep::kPreemptedExitCode;
  if (samples.validation) {
    for (const auto& [name, value] : trainer.evaluate()) accelerator.print(name, " ", value);
  }
  texts::save(trainer, encoder, options.tokenizer);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("embeddings", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
