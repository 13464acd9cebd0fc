// Trains a language model on plain text.

#include "blocks.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "model.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "text/adapter.hpp"
#include "text/program.hpp"
#include "text/script.hpp"
#include "text/tokens.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Trainer;

void complete(Options& options) {
  texts::check_adapter(options);
  texts::check_script_options(options.model, options.tokenizer);
  if (options.tokenizer.empty()) options.tokenizer = options.model;
  if (options.tokenizer.empty())
    throw lockstep::UsageError("--tokenizer is missing: a new model has none of its own.");
  if (texts::has_adapter(options) && (options.model.empty() || options.from_scratch))
    throw lockstep::UsageError(
        "--lora-r and --adapter train an adapter of the weights of --model, and save it alone: give --model, "
        "without --from-scratch.");
  if (options.block_size == 1)
    throw lockstep::UsageError(
        "--block-size 1 leaves nothing to predict: the first token of a block is given.");
}

/// From scratch, a model has the form of its folder, and no weights of it.
std::string beginning_of(const Options& options) {
  return options.from_scratch && !options.model.empty() ? options.model + "/config.json" : options.model;
}

int train(const Accelerator& accelerator, const Options& options) {
  const lockstep::Tokenizer tokenizer = lockstep::load_tokenizer(options.tokenizer);
  torch::manual_seed(options.seed);
  auto init = accelerator.sharded_init();
  const LanguageModel model = make_model(options, tokenizer);
  init.reset();
  const Blocks blocks =
      load_blocks(options, model.block_size,
                  lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  Trainer trainer(accelerator, options,
                  {.model = model.adapter,
                   .train_dataset = blocks.train,
                   .eval_dataset = blocks.validation,
                   .compute_loss = token_loss(options),
                   .compute_metrics = token_accuracy()});
  trainer.add_callback(program_options::base_model_callback(
      {{"--model", beginning_of(options)}, {"--adapter", options.adapter}}, {options.output_dir}));
  accelerator.print("training on ", blocks.train->size(), " blocks of ", model.block_size, " tokens; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  const auto output = trainer.train();
  if (output.preempted) return lockstep::kPreemptedExitCode;
  if (blocks.validation) texts::evaluate_perplexity(trainer);
  model.save(trainer);
  const auto whole = trainer.model().full_parameters(accelerator);
  if (!options.prompt.empty() && accelerator.is_main_process())
    accelerator.print(model.sample(accelerator.device()));
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("causal_lm", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
