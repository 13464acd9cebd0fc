#include "options.hpp"

using lockstep::at_least;
using lockstep::between;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "masked_lm",
          "Trains a model such as BERT or RoBERTa to predict masked tokens of running text: from scratch, or "
          "further on texts of another kind. Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights and the tokenizer, as the hub has it.", required())
          .add("from-scratch", &Options::from_scratch,
               "Use the configuration of --model with new random weights.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; default: the one in --model.")
          .section("data")
          .add("train-file", &Options::train_file,
               "Training texts: .txt, .jsonl, .csv, .arrow, .parquet, or a folder of a saved data set.",
               required())
          .add("validation-file", &Options::validation_file, "Evaluation texts, in the same formats.")
          .add("data-format", &Options::data_format,
               "auto: by file name; text: lines; squad: a JSON file in SQuAD's format (then --text-column is "
               "context, question or title).",
               one_of({"auto", "text", "squad"}))
          .add("text-column", &Options::text_column, "The text column.")
          .add("max-seq-length", &Options::max_seq_length,
               "Tokens in a sample: texts are concatenated and cut into blocks of this size or, with "
               "--line-by-line, truncated to it. 0: the model's maximum input length, at most 1024.",
               at_least(0))
          .add("line-by-line", &Options::line_by_line,
               "Each text is a sample of its own; texts without anything but white space are left out.")
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .section("masking")
          .add("mlm-probability", &Options::mlm_probability,
               "Share of the tokens that are to be predicted: of these, 80% are masked and 10% replaced by a "
               "random token, anew in each epoch.",
               between(0.0, 1.0))
          .add("whole-word-mask", &Options::whole_word_mask, "Mask all tokens of a word, or none.")
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options&) { return {}; }
