#include "options.hpp"

using lockstep::at_least;
using lockstep::one_of;
using lockstep::required;

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "causal_lm",
          "Trains a language model (GPT-2, OPT) on running text, from scratch or from the weights of a "
          "Hugging "
          "Face model, and can generate text with it. Runs alone, or on many ranks under 'lockstep run' or "
          "torchrun.")
          .grammar({.environment_prefix = "", .config_option = "config"})
          .section("model")
          .add("model", &Options::model,
               "Folder with config.json, the weights and the tokenizer, as the hub has it. Or a TorchScript "
               "file from Python, which takes tokens [rows, tokens] and returns logits [rows, tokens, "
               "vocabulary]. Default: a new model with the sizes below.")
          .add("from-scratch", &Options::from_scratch,
               "Use the configuration of --model with new random weights.")
          .add(
              "dtype", &Options::dtype,
              "The dtype of the weights of --model; auto: as its config.json says, or its files. bfloat16 is "
              "for a model that adapters train (--lora-r).",
              one_of({"float32", "bfloat16", "float16", "auto"}))
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
          .section("adapter")
          .add("lora-r", &Options::lora_r,
               "Freeze the model and train a LoRA adapter of this rank; --output-dir gets it in PEFT's "
               "files. 0: "
               "train all weights.",
               at_least(0))
          .add("lora-alpha", &Options::lora_alpha, "The adapter counts lora_alpha / r times.", at_least(0.0))
          .add("lora-dropout", &Options::lora_dropout, "Dropout of the adapter's inputs.",
               lockstep::between(0.0, 1.0))
          .add("lora-target-modules", &Options::lora_target_modules,
               "The layers that get an adapter, by name: q_proj,v_proj. all-linear: all but the head. "
               "Default: "
               "those that PEFT chooses for the family.")
          .add("adapter", &Options::adapter,
               "Folder with an adapter of --model to train further: adapter_config.json and "
               "adapter_model.safetensors, as PEFT or this program writes them.")
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
          .include(lockstep::training_argument_table());
  return table;
}
