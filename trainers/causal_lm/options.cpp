#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "causal_lm",
          "Trains a language model (GPT-2, OPT, or a decoder such as Llama, Qwen or Gemma) on running text, "
          "from scratch or from the weights of a Hugging Face model, and can generate text with it. "
          "Runs alone, or on many ranks under 'lockstep run' or torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights and the tokenizer, as the hub has it. Or a TorchScript "
               "file from Python, which takes tokens [rows, tokens] and returns logits [rows, tokens, "
               "vocabulary]. Default: a new model with the sizes below.")
          .add("from-scratch", &Options::from_scratch,
               "Use the configuration of --model with new random weights.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; default: the one in --model.")
          .add("model-type", &Options::model_type,
               "Family of a new model, by its name in Hugging Face's config.json.")
          .add("n-positions", &Options::n_positions, "Maximum input length of a new model, in tokens.",
               at_least(2))
          .add("n-embd", &Options::n_embd, "Width of a new model.", at_least(1))
          .add("n-layer", &Options::n_layer, "Layers of a new model.", at_least(1))
          .add("n-head", &Options::n_head, "Attention heads of a new model; must divide the width.",
               at_least(1))
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
          .add("block-size", &Options::block_size,
               "Tokens in a sample: texts are concatenated and cut into blocks of this size. 0: the model's "
               "maximum input length, at most 1024.",
               at_least(0))
          .add("packing", &Options::packing,
               "Texts in a block do not attend to each other: each has positions of its own, and its first "
               "token is not predicted. Otherwise they are one running text.")
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; default: the user's cache.")
          .section("sample")
          .add("prompt", &Options::prompt,
               "Beginning of a text that the trained model continues; empty: no text.")
          .add("sample-tokens", &Options::sample_tokens, "Tokens to generate after --prompt.", at_least(1))
          .include(texts::adapter_option_table())
          .include(lockstep::training_argument_table());
  return table;
}

std::vector<program_options::DependentOption> dependent_options(const Options& options) {
  const bool is_new = options.model.empty();
  constexpr const char* kNewModel = "for a new model, without --model";
  auto dependent = texts::dependent_adapter_options(options);
  dependent.insert(dependent.end(),
                   {{"model-type", is_new, kNewModel},
                    {"n-positions", is_new, kNewModel},
                    {"n-embd", is_new, kNewModel},
                    {"n-layer", is_new, kNewModel},
                    {"n-head", is_new, kNewModel},
                    {"from-scratch", !is_new, "with --model, whose configuration it takes"},
                    {"dtype", !is_new, "with --model, whose weights it is for"},
                    {"sample-tokens", !options.prompt.empty(), "with --prompt: give both, or neither"}});
  return dependent;
}
