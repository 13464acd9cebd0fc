#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "translation",
          "Trains an encoder-decoder (BART) to turn texts into other texts, from the beginning or from the "
          "weights of a model of Hugging Face's. Runs alone, or on many ranks under 'lockstep run' or "
          "torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights (model.safetensors) and the tokenizer. Or a TorchScript "
               "file from Python, which takes source tokens, their mask and target tokens and returns scores "
               "[rows, target tokens, vocabulary]. Without it, a new model of the sizes below.")
          .add("tokenizer", &Options::tokenizer,
               "tokenizer.json, or a folder with the tokenizer's files, for both sides; the one in --model "
               "where it is not given. It must put an end token behind a text.")
          .add("d-model", &Options::d_model, "Width of a new model.", at_least(1))
          .add("layers", &Options::layers, "Layers of a new model's encoder, and of its decoder.",
               at_least(1))
          .add("heads", &Options::heads, "Attention heads of a new model; they divide the width.",
               at_least(1))
          .section("data")
          .add("train-file", &Options::train_file,
               "Pairs to train on: .csv, .jsonl, .arrow, .parquet, .txt, or a folder of a saved data set.",
               required())
          .add("train-target-file", &Options::train_target_file,
               "The other side, where it lies in a file of its own: row for row, or by a column 'id' that "
               "both have.")
          .add("validation-file", &Options::validation_file, "Pairs to evaluate on, likewise.")
          .add("validation-target-file", &Options::validation_target_file, "Their other side, likewise.")
          .add("data-format", &Options::data_format,
               "auto: by the files' names; text: lines; squad: JSON files in SQuAD's layout.",
               one_of({"auto", "text", "squad"}))
          .add("source-column", &Options::source_column, "The column of texts to translate.")
          .add("target-column", &Options::target_column, "The column of translations.")
          .add("max-source-length", &Options::max_source_length, "Texts are cut to so many tokens.",
               at_least(2))
          .add("max-target-length", &Options::max_target_length,
               "Translations are cut to so many tokens, and new ones end there.", at_least(2))
          .add("cache-dir", &Options::cache_dir, "Folder for tokenized data; by default the user's cache.")
          .section("evaluation")
          .add("num-beams", &Options::num_beams, "Translations followed at once; 1: greedy.", at_least(1))
          .add("samples", &Options::samples, "How many translations are shown at the end.", at_least(0))
          .include(lockstep::training_argument_table());
  return table;
}
