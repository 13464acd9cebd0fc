// Trains an encoder-decoder on pairs of texts.

#include <algorithm>

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/datasets/prepare.hpp"
#include "lockstep/datasets/tokenize.hpp"
#include "lockstep/train/metrics.hpp"
#include "lockstep/train/trainer.hpp"
#include "model.hpp"
#include "options.hpp"
#include "options/base_model.hpp"
#include "pairs.hpp"
#include "text/program.hpp"
#include "text/script.hpp"
#include "text/tokens.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::Batch;
using lockstep::Tokenizer;
using lockstep::Trainer;

void complete(Options& options) {
  texts::check_script_options(options.model, options.tokenizer);
  if (options.tokenizer.empty()) options.tokenizer = options.model;
  if (options.tokenizer.empty())
    throw lockstep::UsageError("--tokenizer is missing: a new model has none of its own.");
}

/// Logits and labels are aligned: the decoder's inputs are the labels, shifted.
at::Tensor labels_of(const Batch& batch) { return batch["labels"]; }

std::vector<std::int64_t> row_of(const at::Tensor& tokens, std::int64_t row) {
  const at::Tensor ids = tokens[row].cpu().contiguous();
  const auto* first = ids.const_data_ptr<std::int64_t>();
  return {first, first + ids.numel()};
}

/// The model's outputs for the texts of a batch, and the reference texts.
struct Translations {
  std::vector<std::string> made, wanted;
};

Translations translate(const TranslationModel& model, const Tokenizer& tokenizer, const Batch& batch) {
  const at::Tensor tokens = model.generate(batch);
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

/// Translates the validation texts, distributed over the ranks, and prints their BLEU.
void evaluate_translations(Trainer& trainer, const TranslationModel& model, const Tokenizer& tokenizer,
                           const Pairs& pairs, const Options& options) {
  const Accelerator& accelerator = trainer.accelerator();
  const std::int64_t size = options.per_device_eval_batch_size;
  const auto ranks = static_cast<std::int64_t>(accelerator.num_processes());
  lockstep::metrics::Bleu bleu;
  for (std::int64_t begin = accelerator.process_index() * size; begin < pairs.validation->size();
       begin += ranks * size) {
    std::vector<std::int64_t> rows;
    for (auto row = begin; row < std::min(begin + size, pairs.validation->size()); ++row) rows.push_back(row);
    const std::vector<lockstep::SampleContext> contexts(rows.size());
    const Batch batch = pairs.validation->get_batch(rows, contexts).to(accelerator.device());
    const Translations texts = translate(model, tokenizer, batch);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      bleu.update(texts.made[i], texts.wanted[i]);
      if (rows[i] < options.samples) accelerator.print("'", texts.made[i], "' for '", texts.wanted[i], "'");
    }
  }
  accelerator.print("bleu ", bleu.of_all_ranks(accelerator.process_group()).compute());
}

int train(const Accelerator& accelerator, const Options& options) {
  const Tokenizer tokenizer = lockstep::load_tokenizer(options.tokenizer, texts::pretrained_options(options));
  texts::check_languages(tokenizer, options, options.tokenizer);
  const TranslationModel model = make_model(options, tokenizer);
  const Pairs pairs =
      load_pairs(options, model.pad_token,
                 lockstep::distributed_context(accelerator.world(), accelerator.process_group()));
  // 'lockstep prepare' needs only the data.
  if (lockstep::preparing(lockstep::process_environment())) return 0;
  Trainer trainer(accelerator, options,
                  {.model = model.adapter,
                   .train_dataset = pairs.train,
                   .eval_dataset = pairs.validation,
                   .compute_loss = texts::token_loss_of(labels_of, options.label_smoothing_factor),
                   .compute_metrics = texts::token_accuracy(labels_of, "token_")});
  trainer.add_callback(
      program_options::base_model_callback({{"--model", options.model}}, {options.output_dir}));
  accelerator.print("training on ", pairs.train->size(), " pairs; ", accelerator.num_processes(),
                    " rank(s) on ", accelerator.device());
  if (trainer.train().preempted) return lockstep::kPreemptedExitCode;
  if (pairs.validation) {
    for (const auto& [name, value] : trainer.evaluate()) accelerator.print(name, " ", value);
    const auto whole = trainer.model().full_parameters(accelerator);
    if (model.generate) evaluate_translations(trainer, model, tokenizer, pairs, options);
  }
  model.save(trainer);
  accelerator.wait_for_everyone();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("translation", [&] {
    return texts::run<Options>(argc, argv, {option_table(), complete, dependent_options, train});
  });
}
