#include "options.hpp"

#include "text/script.hpp"

using lockstep::at_least;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>("sequence_classification",
                                     "Fine-tunes a model such as BERT to classify a text, or a pair of "
                                     "texts. Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights and the tokenizer, as the hub has it. Class names in "
               "config.json determine which class has which number. A model without names takes the names of "
               "the data; its classifier is replaced by a new one if the number of classes differs. Or a "
               "TorchScript file from Python, which takes tokens [rows, tokens], their mask and their types, "
               "or the first of these, and returns logits [rows, classes].",
               required())
          .add("new-classifier", &Options::new_classifier,
               "Train a new classifier for the classes of the data, whatever classes the model has.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; default: the one in --model.")
          .add("max-length", &Options::max_length,
               "Maximum number of tokens of a text; longer texts are truncated.", at_least(3))
          .section("data")
          .add("train-file", &Options::train_file,
               "Training rows: .csv, .jsonl, .arrow, .parquet, or a folder of a saved data set.", required())
          .add("validation-file", &Options::validation_file, "Evaluation rows, in the same formats.")
          .add("text-column", &Options::text_column, "The text column.")
          .add("pair-column", &Options::pair_column, "The column of second texts, for pairs.")
          .add("label-column", &Options::label_column,
               "The column of classes: names (text), or numbers from 0 on.")
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options& options) {
  return {{"new-classifier", !texts::is_script(options.model),
           "with a folder as --model, not with a TorchScript file"}};
}
