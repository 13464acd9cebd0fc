// Fine-tunes a model to classify the words of texts.

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "scores.hpp"
#include "text/program.hpp"
#include "text/script.hpp"
#include "words.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Trainer;
using lockstep::models::AutoModelForTokenClassification;
using lockstep::models::TokenClassifier;

void complete(Options& options) {
  if (options.tokenizer.empty()) options.tokenizer = options.model;
}

/// What loading the data needs to know about the model; checks its vocabulary and length first.
ModelFacts facts_of_model(const Options& options) {
  const auto config = AutoModelForTokenClassification::config_of(options.model);
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  texts::check_length("--max-length", options.max_length, config.max_position_embeddings);
  ModelFacts facts{.model_type = config.model_type, .pad_token = 0, .classes = std::nullopt};
  facts.pad_token = config.pad_token_id ? *config.pad_token_id
                                        : texts::first_token_of(lockstep::load_tokenizer(options.tokenizer),
                                                                {"[PAD]", "<pad>"});
  if (!options.new_classifier)
    facts.classes = texts::Classes{.names = config.id2label, .count = config.num_labels};
  return facts;
}

TokenClassifier load_model(const Accelerator& accelerator, const Options& options,
                           const texts::Classes& classes) {
  torch::manual_seed(options.seed);
  lockstep::models::PretrainedReport report;
  auto model = AutoModelForTokenClassification::from_pretrained(
      options.model,
      {.num_labels = classes.count, .new_classifier = options.new_classifier, .report = &report});
  model->set_id2label(classes.names);
  for (const auto& name : report.initialized) accelerator.print("new: ", name);
  return model;
}

int train(const Accelerator& accelerator, const Options& options) {
  const Words words =
      load_words(options, facts_of_model(options),
                 lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  const TokenClassifier model = load_model(accelerator, options, words.classes);
  Trainer trainer(
      accelerator, options,
      {.model = lockstep::models::trainer_model(model),
       .train_dataset = words.train,
       .eval_dataset = words.validation,
       .compute_metrics = entity_scores(words.classes.names, options.return_entity_level_metrics)});
  trainer.add_callback(
      program_options::base_model_callback({{"--model", options.model}}, {options.output_dir}));
  accelerator.print("training on ", words.train->size(), " texts with ", words.classes.count, " tags; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  if (words.validation) {
    for (const auto& [name, value] : trainer.evaluate()) accelerator.print(name, " ", value);
  }
  texts::save(trainer, model, options.tokenizer);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("token_classification", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
