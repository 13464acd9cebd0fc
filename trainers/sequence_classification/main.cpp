// Fine-tunes a model to classify texts.

#include <fmt/core.h>
#include <torch/nn/functional/loss.h>

#include <functional>

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/trainer_model.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "rows.hpp"
#include "text/program.hpp"
#include "text/script.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::Trainer;
namespace models = lockstep::models;

void complete(Options& options) {
  texts::check_script_options(options.model, options.tokenizer);
  if (options.tokenizer.empty()) options.tokenizer = options.model;
}

/// Reports an unsuitable model before training begins.
void check_config(const models::ModelConfig& config, const Options& options) {
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  const bool other = !config.problem_type.empty() && config.problem_type != "single_label_classification";
  if (other && !options.new_classifier) {
    throw lockstep::UsageError(
        fmt::format("--model {}: its problem_type is {}, but this program trains one class per text; "
                    "use --new-classifier to replace its classifier.",
                    options.model, config.problem_type));
  }
  texts::check_length("--max-length", options.max_length, config.max_position_embeddings);
}

models::SequenceClassifier load_model(const Accelerator& accelerator, const Options& options,
                                      const texts::Classes& classes) {
  torch::manual_seed(options.seed);
  models::PretrainedReport report;
  auto model = models::AutoModelForSequenceClassification::from_pretrained(
      options.model,
      {.num_labels = classes.count, .new_classifier = options.new_classifier, .report = &report});
  if (!classes.names.empty()) model->set_id2label(classes.names);
  for (const auto& name : report.initialized) accelerator.print("new: ", name);
  return model;
}

std::vector<at::Tensor> inputs_of(const Batch& batch) {
  return {batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]};
}

/// A model and its function for saving: that of a folder, or a TorchScript file from Python.
struct Classifier {
  std::shared_ptr<lockstep::ModelAdapter> adapter;
  std::function<void(const Trainer&)> save;
};

Classifier load_classifier(const Accelerator& accelerator, const Options& options,
                           const texts::Classes& classes) {
  if (texts::is_script(options.model)) {
    const at::Tensor tokens = texts::trial_tokens(options.max_length);
    auto script = texts::load_script(options.model, {tokens, tokens, tokens}, {2, classes.count});
    return {texts::adapt_script(script, inputs_of), [script, &options](const Trainer& trainer) {
              texts::save_script(trainer, script, options.tokenizer);
            }};
  }
  auto model = load_model(accelerator, options, classes);
  return {models::trainer_model(model),
          [model, &options](const Trainer& trainer) { texts::save(trainer, model, options.tokenizer); }};
}

lockstep::Loss loss_of(const Batch& outputs, const Batch& batch, double smoothing) {
  namespace F = torch::nn::functional;
  return {F::cross_entropy(outputs["logits"], batch["labels"],
                           F::CrossEntropyFuncOptions().label_smoothing(smoothing))};
}

/// What loading the data needs to know about the model; checks its vocabulary and length first.
ModelFacts facts_of_model(const Options& options) {
  const auto padding_of_tokenizer = [&] {
    return texts::first_token_of(lockstep::load_tokenizer(options.tokenizer), {"[PAD]", "<pad>"});
  };
  if (texts::is_script(options.model)) return {padding_of_tokenizer(), {}};
  const auto config = models::AutoModelForSequenceClassification::config_of(options.model);
  check_config(config, options);
  const std::int64_t padding = config.pad_token_id ? *config.pad_token_id : padding_of_tokenizer();
  if (options.new_classifier) return {padding, {}};
  return {padding, texts::Classes{.names = config.id2label, .count = config.num_labels}};
}

int train(const Accelerator& accelerator, const Options& options) {
  const Rows rows =
      load_rows(options, facts_of_model(options),
                lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  const Classifier model = load_classifier(accelerator, options, rows.classes);
  Trainer trainer(accelerator, options,
                  {.model = model.adapter,
                   .train_dataset = rows.train,
                   .eval_dataset = rows.validation,
                   .compute_loss = [smoothing = options.label_smoothing_factor](
                                       const Batch& outputs,
                                       const Batch& batch) { return loss_of(outputs, batch, smoothing); },
                   .compute_metrics = lockstep::metrics::Classification(rows.classes.count)});
  trainer.add_callback(
      program_options::base_model_callback({{"--model", options.model}}, {options.output_dir}));
  accelerator.print("training on ", rows.train->size(), " texts of ", rows.classes.count, " classes; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  if (rows.validation) {
    for (const auto& [name, value] : trainer.evaluate()) accelerator.print(name, " ", value);
  }
  model.save(trainer);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("sequence_classification", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
