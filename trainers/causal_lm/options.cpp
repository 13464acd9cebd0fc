#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "causal_lm",
          "Trains a GPT-2 on running text, from the beginning or from the weights of a model of Hugging "
          "Face's, and shows a text that it writes. Runs alone, or on many ranks under 'lockstep run' or "
          "torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights (model.safetensors) and the tokenizer. Or a TorchScript "
               "file from Python, which takes tokens [rows, tokens] and returns scores [rows, tokens, "
               "vocabulary]. Without it, a new model of the sizes below.")
          .add("from-scratch", &Options::from_scratch,
               "Of --model, take the configuration and draw new weights.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files; the one in --model where it is not "
               "given.")
          .add("n-positions", &Options::n_positions, "Longest input of a new model, in tokens.", at_least(2))
          .add("n-embd", &Options::n_embd, "Width of a new model.", at_least(1))
          .add("n-layer", &Options::n_layer, "Layers of a new model.", at_least(1))
          .add("n-head", &Options::n_head, "Attention heads of a new model; they divide the width.",
               at_least(1))
          .section("data")
          .add("train-file", &Options::train_file,
               "Texts to train on: .txt, .jsonl, .csv, .arrow, .parquet, or a folder of a saved data set.",
               required())
          .add("validation-file", &Options::validation_file, "Texts to evaluate on, likewise.")
          .add("data-format", &Options::data_format,
               "auto: by the files' names; text: lines; squad: a JSON file in SQuAD's layout (then "
               "--text-column is context, question or title).",
               one_of({"auto", "text", "squad"}))
          .add("text-column", &Options::text_column, "The column of texts.")
          .add("block-size", &Options::block_size,
               "Tokens in a sample: texts are joined and cut into such blocks. 0: the longest input of the "
               "model, at most 1024.",
               at_least(0))
          .add("packing", &Options::packing,
               "Texts of one block do not look at each other: each has positions of its own, and its first "
               "token is not predicted. Without it they are one running text.")
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; by default the user's cache.")
          .section("sample")
          .add("prompt", &Options::prompt,
               "How the text begins that the trained model is to go on with; empty: no text.")
          .add("sample-tokens", &Options::sample_tokens, "Tokens to add to it.", at_least(1))
          .include(lockstep::training_argument_table());
  return table;
}
