// Fine-tunes a language model on conversations.

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "samples.hpp"
#include "text/adapter.hpp"
#include "text/chats.hpp"
#include "text/program.hpp"
#include "text/special_tokens.hpp"
#include "text/tokens.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Trainer;
using lockstep::models::AutoModelForCausalLM;

/// trl's own.
constexpr std::int64_t kDefaultLength = 1024;

void complete(Options& options) {
  texts::check_adapter(options);
  if (options.tokenizer.empty()) options.tokenizer = options.model;
  if (options.max_length == 1)
    throw lockstep::UsageError("--max-length 1 leaves nothing to predict: the first token is given.");
}

int train(const Accelerator& accelerator, const Options& options) {
  const lockstep::Tokenizer tokenizer =
      lockstep::load_tokenizer(options.tokenizer, texts::with_eos_token(options.eos_token));
  const auto config = AutoModelForCausalLM::config_of(options.model);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  texts::check_eos_token(options.eos_token, options.tokenizer, config.vocab_size);
  const auto max_length = texts::choose_length("--max-length", options.max_length,
                                               config.max_position_embeddings, kDefaultLength);
  torch::manual_seed(options.seed);
  auto init = accelerator.sharded_init();
  const auto model = AutoModelForCausalLM::from_pretrained(options.model, texts::loading_of(options));
  texts::add_adapter(model, options.model, options);
  init.reset();
  const Samples samples = load_samples(
      options, max_length, lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  if (!samples.unused.empty()) accelerator.print(samples.unused);
  if (options.assistant_only_loss &&
      !texts::is_end_of_turn_trained(tokenizer, texts::read_chat_template(options.chat_template_path))) {
    accelerator.print(
        "--assistant-only-loss: the chat template's {% generation %} block does not hold the token that ends "
        "an "
        "answer, so the model may not learn to stop: move it into the block, or train on all tokens");
  }
  Trainer trainer(
      accelerator, options,
      {.model = lockstep::models::trainer_model(model),
       .train_dataset = samples.train,
       .eval_dataset = samples.validation,
       // Padding is after the texts, which do not see what follows them.
       .data_collator = lockstep::causal_lm_collate({.pad_token_id = texts::padding_token(tokenizer)}),
       .compute_loss = texts::token_loss_of(texts::next_token_labels, options.label_smoothing_factor),
       .compute_metrics = texts::token_accuracy(texts::next_token_labels)});
  trainer.add_callback(program_options::base_model_callback(
      {{"--model", options.model}, {"--adapter", options.adapter}}, {options.output_dir}));
  accelerator.print("training on ", samples.train->size(), " samples of at most ", max_length, " tokens; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  const auto output = trainer.train();
  if (output.preempted) return lockstep::kPreemptedExitCode;
  if (samples.validation) texts::evaluate_perplexity(trainer);
  texts::save(trainer, model, options.tokenizer);
  texts::save_eos_token(trainer, options.eos_token);
  texts::save_special_tokens(trainer, texts::special_tokens_of(tokenizer, /*pads_with_eos=*/true),
                             texts::has_adapter(options) ? options.model : "");
  texts::save_chat_template(trainer, options.chat_template_path);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("sft", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
