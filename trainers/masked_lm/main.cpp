// Trains a model to predict the masked tokens of texts.

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "samples.hpp"
#include "text/program.hpp"
#include "text/tokens.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::Trainer;
using lockstep::models::AutoModelForMaskedLM;
using lockstep::models::MaskedLM;

/// The limit of run_mlm.py for models that would take longer samples.
constexpr std::int64_t kLongestSample = 1024;

void complete(Options& options) {
  if (options.tokenizer.empty()) options.tokenizer = options.model;
  if (options.mlm_probability == 0)
    throw lockstep::UsageError("--mlm-probability 0 leaves nothing to predict.");
}

MaskedLM load_model(const Accelerator& accelerator, const Options& options) {
  if (options.from_scratch) return AutoModelForMaskedLM::from_config(options.model);
  lockstep::models::PretrainedReport report;
  auto model = AutoModelForMaskedLM::from_pretrained(options.model, {.report = &report});
  for (const auto& name : report.initialized) accelerator.print("new: ", name);
  return model;
}

at::Tensor labels_of(const Batch& batch) { return batch["labels"]; }

/// From scratch, a model has the form of its folder, and no weights of it.
std::string beginning_of(const Options& options) {
  return options.from_scratch && !options.model.empty() ? options.model + "/config.json" : options.model;
}

int train(const Accelerator& accelerator, const Options& options) {
  const lockstep::Tokenizer tokenizer = lockstep::load_tokenizer(options.tokenizer);
  const auto config = AutoModelForMaskedLM::config_of(options.model);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  const auto max_length = texts::choose_length("--max-seq-length", options.max_seq_length,
                                               config.max_position_embeddings, kLongestSample);
  torch::manual_seed(options.seed);
  auto init = accelerator.sharded_init();
  const MaskedLM model = load_model(accelerator, options);
  init.reset();
  const Samples samples =
      load_samples(options, tokenizer, max_length, config.pad_token_id.value_or(0),
                   lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  Trainer trainer(accelerator, options,
                  {.model = lockstep::models::trainer_model(model),
                   .train_dataset = samples.train,
                   .eval_dataset = samples.validation,
                   .compute_loss = texts::token_loss_of(labels_of, options.label_smoothing_factor),
                   .compute_metrics = texts::token_accuracy(labels_of)});
  trainer.add_callback(
      program_options::base_model_callback({{"--model", beginning_of(options)}}, {options.output_dir}));
  accelerator.print("training on ", samples.train->size(), " samples of at most ", max_length, " tokens; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  if (samples.validation) texts::evaluate_perplexity(trainer);
  texts::save(trainer, model, options.tokenizer);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("masked_lm", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
