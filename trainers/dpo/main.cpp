// Trains a language model on preferences between two completions.

#include <fmt/core.h>

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/lora.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "pairs.hpp"
#include "text/adapter.hpp"
#include "text/chats.hpp"
#include "text/program.hpp"
#include "text/special_tokens.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::models::AutoModelForCausalLM;
using lockstep::models::CausalLM;

/// trl's own.
constexpr std::int64_t kDefaultLength = 1024;

void complete(Options& options) {
  texts::check_adapter(options);
  if (options.tokenizer.empty()) options.tokenizer = options.model;
  if (options.max_length == 1)
    throw lockstep::UsageError("--max-length 1 leaves nothing to predict: the first token is given.");
  if (options.lora_r > 0 && options.lora_dropout > 0 && options.disable_dropout)
    throw lockstep::UsageError(
        "--lora-dropout has no effect while dropout is off: add --no-disable-dropout, or leave it out.");
  check_dpo_options(loss_options(options));
}

void check_reference_model(const Options& options, std::int64_t vocab_size, std::int64_t max_length) {
  if (options.reference_model.empty()) return;
  const auto reference = AutoModelForCausalLM::config_of(options.reference_model);
  if (reference.vocab_size != vocab_size)
    throw lockstep::UsageError(fmt::format(
        "--reference-model {} has a vocabulary of {} tokens, and --model {} one of {}: both must know the "
        "same tokens.",
        options.reference_model, reference.vocab_size, options.model, vocab_size));
  if (reference.max_position_embeddings < max_length)
    throw lockstep::UsageError(
        fmt::format("--reference-model {} takes texts of at most {} tokens, but samples may have {}: set "
                    "--max-length {}, or less.",
                    options.reference_model, reference.max_position_embeddings, max_length,
                    reference.max_position_embeddings));
}

CausalLM load(const std::string& folder, const Options& options) {
  return AutoModelForCausalLM::from_pretrained(folder, texts::loading_of(options));
}

/// The model to stay close to: another one, or what is trained as it was at first, an adapter included.
CausalLM load_reference(const Options& options) {
  if (!options.reference_model.empty()) return load(options.reference_model, options);
  auto reference = load(options.model, options);
  if (!options.adapter.empty()) lockstep::models::load_adapter(reference, options.adapter);
  return reference;
}

/// A new adapter changes nothing at first, so that the model without it is the reference.
bool model_is_reference(const Options& options) {
  return options.lora_r > 0 && options.reference_model.empty();
}

/// The folders of that model.
std::vector<std::string> folders_of_reference(const Options& options) {
  if (!options.reference_model.empty()) return {options.reference_model};
  if (!options.adapter.empty()) return {options.model, options.adapter};
  return {options.model};
}

int train(const Accelerator& accelerator, const Options& options) {
  const lockstep::Tokenizer tokenizer = lockstep::load_tokenizer(options.tokenizer);
  const auto config = AutoModelForCausalLM::config_of(options.model);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  const auto max_length = texts::choose_length("--max-length", options.max_length,
                                               config.max_position_embeddings, kDefaultLength);
  check_reference_model(options, config.vocab_size, max_length);
  Pairs pairs = load_pairs(options, max_length,
                           lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  const auto collate = lockstep::models::preference_collate(texts::padding_token(tokenizer));
  if (options.precompute_ref_log_probs) {
    pairs = with_reference(pairs,
                           {[&] { return load_reference(options); }, collate, folders_of_reference(options)},
                           options, accelerator);
  }
  torch::manual_seed(options.seed);
  auto init = accelerator.sharded_init();
  const auto model = load(options.model, options);
  texts::add_adapter(model, options.model, options);
  init.reset();
  CausalLM reference = nullptr;
  if (!options.precompute_ref_log_probs && !model_is_reference(options)) reference = load_reference(options);
  lockstep::models::DpoTrainer trainer(
      accelerator, options,
      {.model = lockstep::models::dpo_model(model, loss_options(options), reference),
       .train_dataset = pairs.train,
       .eval_dataset = pairs.validation,
       .data_collator = collate,
       .compute_metrics = lockstep::models::dpo_metrics()});
  trainer.add_callback(program_options::base_model_callback({{"--model", options.model},
                                                             {"--adapter", options.adapter},
                                                             {"--reference-model", options.reference_model}},
                                                            {options.output_dir}));
  accelerator.print("training on ", pairs.train->size(), " pairs of at most ", max_length, " tokens; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  const auto output = trainer.train();
  if (output.preempted) return lockstep::kPreemptedExitCode;
  if (pairs.validation) {
    for (const auto& [name, value] : trainer.evaluate()) accelerator.print(name, " ", value);
  }
  texts::save(trainer, model, options.tokenizer);
  texts::save_special_tokens(trainer, texts::special_tokens_of(tokenizer, /*pads_with_eos=*/true),
                             texts::has_adapter(options) ? options.model : "");
  texts::save_chat_template(trainer, options.chat_template_path);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("dpo", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
