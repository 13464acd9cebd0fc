#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "translation",
          "Trains an encoder-decoder (BART, mBART, M2M100 and NLLB, Marian) to translate texts, from scratch "
          "or "
          "from the weights of a Hugging Face model. Runs alone, or on many ranks under 'lockstep run' or "
          "torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights and the tokenizer, as the hub has it. Or a TorchScript "
               "file from Python, which takes source tokens, their mask and target tokens and returns logits "
               "[rows, target tokens, vocabulary]. Default: a new model with the sizes below.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files, for both languages; default: the one "
               "in --model. It must append an end token to a text.")
          .add("model-type", &Options::model_type,
               "Family of a new model, by its name in Hugging Face's config.json.")
          .add("d-model", &Options::d_model, "Width of a new model.", at_least(1))
          .add("layers", &Options::layers, "Layers of a new model's encoder, and of its decoder.",
               at_least(1))
          .add("heads", &Options::heads, "Attention heads of a new model; must divide the width.",
               at_least(1))
          .section("data")
          .add("train-file", &Options::train_file,
               "Training pairs: .csv, .jsonl, .arrow, .parquet, .txt, or a folder of a saved data set.",
               required())
          .add("train-target-file", &Options::train_target_file,
               "The translations, if they are in a file of their own: row by row, or matched by a column "
               "'id' that both have.")
          .add("validation-file", &Options::validation_file, "Evaluation pairs, in the same formats.")
          .add("validation-target-file", &Options::validation_target_file,
               "The translations of --validation-file, if they are in a file of their own.")
          .add("data-format", &Options::data_format,
               "auto: by file name; text: lines; squad: JSON files in SQuAD's format.",
               one_of({"auto", "text", "squad"}))
          .add("source-column", &Options::source_column, "The column of texts to translate.")
          .add("target-column", &Options::target_column, "The column of translations.")
          .add("max-source-length", &Options::max_source_length,
               "Maximum number of tokens of a text; longer texts are truncated.", at_least(2))
          .add("max-target-length", &Options::max_target_length,
               "Maximum number of tokens of a translation; longer ones are truncated, and generation stops "
               "there.",
               at_least(2))
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .include(texts::language_table())
          .section("evaluation")
          .add("num-beams", &Options::num_beams,
               "Number of beams; 1: greedy search. Default: that of generation_config.json in --model, whose "
               "other settings count as well; otherwise 1.",
               at_least(1))
          .add("samples", &Options::samples, "Number of translations to print at the end.", at_least(0))
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options& options) {
  const bool is_new = options.model.empty(), evaluates = !options.validation_file.empty();
  constexpr const char* kNewModel = "for a new model, without --model";
  constexpr const char* kEvaluation = "with --validation-file: give both, or neither";
  return {{"model-type", is_new, kNewModel},
          {"d-model", is_new, kNewModel},
          {"layers", is_new, kNewModel},
          {"heads", is_new, kNewModel},
          {"validation-target-file", evaluates, kEvaluation},
          {"num-beams", evaluates, kEvaluation},
          {"samples", evaluates, kEvaluation}};
}
