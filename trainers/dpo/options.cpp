#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "dpo",
          "Trains a language model to prefer chosen completions to rejected ones (direct preference "
          "optimization), as trl's DPOTrainer does. Runs alone, or on many ranks under 'lockstep run' or "
          "torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights and the tokenizer, as the hub has it.", required())
          .add("reference-model", &Options::reference_model,
               "Folder of the model to stay close to; default: the initial model, of an adapter what it was "
               "at first.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; default: the one in --model.")
          .add("chat-template-path", &Options::chat_template_path,
               "A file with a chat template instead of the tokenizer's own.")
          .section("data")
          .add("train-file", &Options::train_file,
               "Training data: .jsonl, .csv, .arrow, .parquet, or a folder of a saved data set, with columns "
               "'chosen' and 'rejected', and 'prompt' unless both begin with it: texts or conversations.",
               required())
          .add("validation-file", &Options::validation_file, "Evaluation data, in the same formats.")
          .add("max-length", &Options::max_length,
               "Longer prompts with their completions are cut to this many tokens. 0: the model's maximum "
               "input length, at most 1024.",
               at_least(0))
          .add("truncation-mode", &Options::truncation_mode,
               "Which part of longer samples to keep: the start or the end.",
               one_of({"keep_start", "keep_end"}))
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .section("preferences")
          .add("loss-type", &Options::loss_type, "The loss of a pair.",
               one_of({"sigmoid", "robust", "hinge", "ipo"}))
          .add("beta", &Options::beta, "How strongly the model is held to the reference.",
               lockstep::more_than(0))
          .add("label-smoothing", &Options::label_smoothing,
               "The share of pairs that are taken to be swapped, for the losses sigmoid and robust.",
               at_least(0), lockstep::less_than(0.5))
          .add("disable-dropout", &Options::disable_dropout,
               "Train without the dropout of model and adapter.")
          .add("precompute-ref-log-probs", &Options::precompute_ref_log_probs,
               "Compute the reference before the training, which then needs neither its memory nor its time. "
               "The result is cached, as tokens are.")
          .add("precompute-ref-batch-size", &Options::precompute_ref_batch_size,
               "The pairs of a rank at a time for that; 0: the batch size of the training or evaluation.",
               at_least(0))
          .include(texts::adapter_option_table())
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options& options) {
  auto dependent = texts::dependent_adapter_options(options);
  dependent.push_back({"precompute-ref-batch-size", options.precompute_ref_log_probs,
                       "with --precompute-ref-log-probs: give both, or neither"});
  return dependent;
}

lockstep::models::DpoOptions loss_options(const Options& options) {
  using lockstep::models::DpoLoss;
  const auto loss = options.loss_type == "robust"  ? DpoLoss::robust
                    : options.loss_type == "hinge" ? DpoLoss::hinge
                    : options.loss_type == "ipo"   ? DpoLoss::ipo
                                                   : DpoLoss::sigmoid;
  return {.loss_type = loss,
          .beta = options.beta,
          .label_smoothing = options.label_smoothing,
          .disable_dropout = options.disable_dropout,
          .precomputed_reference = options.precompute_ref_log_probs};
}
