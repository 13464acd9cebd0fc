#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "sft",
          "Fine-tunes a language model on conversations, on prompts with completions, or on texts, as trl's "
          "SFTTrainer does. Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights and the tokenizer, as the hub has it.", required())
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; default: the one in --model.")
          .add("chat-template-path", &Options::chat_template_path,
               "A file with a chat template instead of the tokenizer's own.")
          .add("eos-token", &Options::eos_token,
               "The token that ends texts and answers, instead of the tokenizer's own: <|im_end|> for a base "
               "model that learns to chat.")
          .section("data")
          .add(
              "train-file", &Options::train_file,
              "Training data: .jsonl, .csv, .arrow, .parquet, or a folder of a saved data set, with a column "
              "'messages', or 'prompt' and 'completion', or texts.",
              required())
          .add("validation-file", &Options::validation_file, "Evaluation data, in the same formats.")
          .add("data-format", &Options::data_format,
               "auto: by file name; text: lines; squad: a JSON file in SQuAD's format.",
               one_of({"auto", "text", "squad"}))
          .add("dataset-text-field", &Options::dataset_text_field,
               "The column of texts, for data without messages and prompts.")
          .add("max-length", &Options::max_length,
               "Longer samples are cut to this many tokens; with --packing, the tokens of a row. 0: the "
               "model's maximum input length, at most 1024.",
               at_least(0))
          .add("truncation-mode", &Options::truncation_mode,
               "Which part of longer samples to keep: the start or the end.",
               one_of({"keep_start", "keep_end"}))
          .add("assistant-only-loss", &Options::assistant_only_loss,
               "Train only on what the assistant says: the {% generation %} blocks of the chat template.")
          .add("completion-only-loss", &Options::completion_only_loss,
               "Train only on completions, not on prompts. auto: if there are prompts.",
               one_of({"auto", "true", "false"}))
          .add("packing", &Options::packing,
               "Pack several samples into one row. They do not attend to each other.")
          .add("packing-strategy", &Options::packing_strategy,
               "bfd: whole samples where they fit best, longer ones are cut; bfd_split: longer ones are "
               "split; "
               "wrapped: one running text, cut where a row is full.",
               one_of({"bfd", "bfd_split", "wrapped"}))
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .include(texts::adapter_option_table())
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options& options) {
  auto dependent = texts::dependent_adapter_options(options);
  dependent.insert(dependent.end(),
                   {{"packing-strategy", options.packing, "with --packing: give both, or neither"},
                    {"truncation-mode", !options.packing, "without --packing: its strategy decides"}});
  return dependent;
}
