// Fine-tunes a BERT to tell the class of a text.

#include <torch/nn/functional/loss.h>

#include "lockstep/core/prepare.hpp"
#include "lockstep/core/program.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/train/metrics.hpp"
#include "lockstep/train/trainer.hpp"
#include "options.hpp"
#include "rows.hpp"
#include "text/program.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::Trainer;
using lockstep::metrics::Average;
namespace models = lockstep::models;

/// Accuracy, and F1: of class 1 where there are two, else the mean over the classes.
class Scores final : public lockstep::EvaluationMetrics {
 public:
  explicit Scores(std::int64_t classes) : classes_(classes), scores_(classes) {}

  void reset() override { scores_ = lockstep::metrics::Classification(classes_); }
  void update(const Batch& outputs, const Batch& batch) override {
    scores_.update(outputs["logits"], batch["labels"]);
  }
  lockstep::LogValues compute(const lockstep::ProcessGroup& group) override {
    const auto all = scores_.of_all_ranks(group);
    const auto average = classes_ == 2 ? Average::binary : Average::macro;
    return {{"accuracy", all.accuracy()}, {"f1", all.f1({.average = average})}};
  }

 private:
  std::int64_t classes_;
  lockstep::metrics::Classification scores_;
};

void complete(Options& options) {
  if (options.model.empty()) throw lockstep::UsageError("--model is missing: name a model's folder.");
  if (options.tokenizer.empty()) options.tokenizer = options.model;
}

/// What the model cannot take must not be found out in the middle of the training.
void check_lengths(const models::BertConfig& config, const Options& options) {
  texts::check_vocabulary(options.tokenizer, options.model, config.vocab_size);
  if (options.max_length <= config.max_position_embeddings) return;
  throw lockstep::UsageError(
      "--max-length " + std::to_string(options.max_length) +
      " is more than the model takes: " + std::to_string(config.max_position_embeddings) + " tokens.");
}

models::BertForSequenceClassification load_model(const Accelerator& accelerator, const Options& options,
                                                 std::int64_t classes) {
  torch::manual_seed(options.seed);
  models::PretrainedReport report;
  auto model = models::load_bert_classifier(options.model, classes, &report);
  for (const auto& name : report.initialized) accelerator.print("new: ", name);
  return model;
}

std::shared_ptr<lockstep::ModelAdapter> adapt(const models::BertForSequenceClassification& model) {
  return lockstep::adapt_model(model, [](auto& bert, const Batch& batch) {
    const at::Tensor logits = bert(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]);
    return Batch{{"loss", torch::nn::functional::cross_entropy(logits, batch["labels"])}, {"logits", logits}};
  });
}

int train(const Accelerator& accelerator, const Options& options) {
  const auto config = models::BertConfig::from_file(options.model);
  check_lengths(config, options);
  const Rows rows = load_rows(options, config.pad_token_id,
                              lockstep::job_ranks(accelerator.world(), accelerator.process_group()));
  // Under 'lockstep prepare' the data were all that was asked for.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  auto model = load_model(accelerator, options, rows.classes.count);
  Trainer trainer(accelerator, options,
                  {.model = adapt(model),
                   .train_dataset = rows.train,
                   .eval_dataset = rows.validation,
                   .metrics = std::make_shared<Scores>(rows.classes.count)});
  accelerator.print("training on ", rows.train->size(), " texts of ", rows.classes.count, " classes; ",
                    accelerator.num_processes(), " rank(s) on ", accelerator.device());
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  if (rows.validation) {
    for (const auto& [name, value] : trainer.evaluate()) accelerator.print(name, " ", value);
  }
  texts::save(trainer, model, options.tokenizer);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("sequence_classification",
                               [&] { return texts::run(argc, argv, option_table(), complete, train); });
}
