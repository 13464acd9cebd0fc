#include "options.hpp"

using lockstep::at_least;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "token_classification",
          "Fine-tunes a model such as BERT to classify the words of texts: names of persons and places, "
          "parts "
          "of speech. Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add(
              "model", &Options::model,
              "Folder with config.json, the weights and the tokenizer, as the hub has it. Class names in "
              "config.json determine which tag has which number. A model without names takes the tags of the "
              "data; its classifier is replaced by a new one if the number of tags differs.",
              required())
          .add("new-classifier", &Options::new_classifier,
               "Train a new classifier for the tags of the data, whatever classes the model has.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; default: the one in --model.")
          .add("max-length", &Options::max_length,
               "Maximum number of tokens of a text; longer texts are truncated.", at_least(3))
          .section("data")
          .add("train-file", &Options::train_file,
               "Training rows: .jsonl, .arrow, .parquet, or a folder of a saved data set.", required())
          .add("validation-file", &Options::validation_file, "Evaluation rows, in the same formats.")
          .add("text-column", &Options::text_column, "The column of words: a list of texts in each row.")
          .add(
              "label-column", &Options::label_column,
              "The column of tags, one for each word: names (B-PER, O), or numbers of a ClassLabel or of the "
              "model's classes. Default: ner_tags, or labels.")
          .add("label-all-tokens", &Options::label_all_tokens,
               "All tokens of a word have its tag (the further ones I-PER for B-PER); otherwise only the "
               "first "
               "one counts.")
          .add("return-entity-level-metrics", &Options::return_entity_level_metrics,
               "Evaluations report the scores of each type of entity as well.")
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options& options) {
  return {{"return-entity-level-metrics", !options.validation_file.empty(),
           "with --validation-file: give both, or neither"}};
}
