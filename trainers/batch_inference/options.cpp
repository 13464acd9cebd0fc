#include "options.hpp"

#include <fmt/core.h>

#include <filesystem>

#include "lockstep/core/error.hpp"
#include "options/dependent_options.hpp"

using lockstep::at_least;
using lockstep::at_most;
using lockstep::more_than;
using lockstep::not_empty;
using lockstep::one_of;
using lockstep::required;

bool is_program(const Options& options) { return std::filesystem::is_regular_file(options.model); }

const std::string& tokenizer_path(const Options& options) {
  return options.tokenizer.empty() ? options.model : options.tokenizer;
}

const lockstep::OptionTable<Options>& option_table() {
  static const auto table =
      lockstep::OptionTable<Options>(
          "batch_inference",
          "Applies a pretrained model to every row of a data set, with a copy of the model on each worker: "
          "threads of one process, or all ranks of a job under 'lockstep run' or torchrun. A run that was "
          "killed resumes; a finished run is read from the cache.")
          .section("data")
          .add("data", &Options::data,
               "Arrow, Parquet, CSV, JSON lines or text file, or a folder written by save_to_disk.",
               required())
          .add("column", &Options::column, "The text column.", not_empty())
          .section("model")
          .add("model", &Options::model,
               "Folder of a Hugging Face model: config.json, weights and tokenizer. "
               "BERT for feature-extraction and text-classification; "
               "GPT-2, OPT or a decoder (Llama, Qwen, Gemma, ...) for text-generation; "
               "BART, mBART, M2M100, NLLB or Marian for translation. "
               "For the first two tasks also a file from Python, TorchScript or an AOTInductor package, "
               "which takes ids and mask [rows, tokens] and returns hidden states or logits.",
               required())
          .add("adapter", &Options::adapter,
               "Folder of a LoRA adapter of this model: adapter_config.json and adapter_model.safetensors, "
               "from Lockstep or PEFT.")
          .add("tokenizer", &Options::tokenizer,
               "Folder with tokenizer.json (or vocab.txt), if not in the model's folder.")
          .add("task", &Options::task, "What to compute.",
               one_of({"feature-extraction", "text-classification", "text-generation", "translation"}))
          .include(texts::language_table())
          .section("texts")
          .add("batch-size", &Options::batch_size,
               "Texts that pass through the model together. Apart from rounding, results do not depend on "
               "this number.",
               at_least(1))
          .add("max-length", &Options::max_length,
               "Maximum number of tokens of a text; longer texts are truncated.", at_least(2))
          .add("max-new-tokens", &Options::max_new_tokens,
               "Maximum number of tokens to generate; 32 if the model's folder does not say. "
               "The defaults of this option and of those up to --top-p are read from the folder's "
               "generation_config.json (in old folders config.json), whose other settings also apply.",
               at_least(1))
          .add("num-beams", &Options::num_beams,
               "Number of beams; 1: greedy search. Default: the folder's, or 1.", at_least(1))
          .add("do-sample", &Options::do_sample,
               "For text-generation: sample tokens instead of taking the most probable one. The sample of a "
               "row depends only on --seed and the row's number. Default: as the folder says; "
               "--no-do-sample overrides it.")
          .add("temperature", &Options::temperature,
               "For --do-sample: divides the logits; values below 1 favor probable tokens. Default: the "
               "folder's, "
               "or 1.",
               more_than(0))
          .add("top-k", &Options::top_k,
               "For --do-sample: sample from this many most probable tokens; 0: from all. Default: the "
               "folder's, or "
               "50.",
               at_least(0))
          .add("top-p", &Options::top_p,
               "For --do-sample: sample from the most probable tokens that together have this probability. "
               "Default: "
               "the folder's, or 1.",
               more_than(0), at_most(1))
          .add("seed", &Options::seed, "For --do-sample: seed of the random numbers.")
          .section("machine")
          .add("num-proc", &Options::num_proc,
               "Workers per process; 0: one per processor in a single process, otherwise one.", at_least(0))
          .add("device", &Options::device, "auto, cpu, cuda, or a device such as cuda:0.")
          .add("timeout", &Options::timeout, "Seconds within which the ranks of a job must have connected.",
               at_least(1))
          .section("output")
          .add("output", &Options::output,
               "Output file, ending in .jsonl, .csv or .arrow; any other name is a folder as save_to_disk "
               "writes it.",
               not_empty())
          .add("output-column", &Options::output_column,
               "The new column; default: embedding, label (the class name, or its number if config.json has "
               "no names) or generated_text.")
          .add("cache-dir", &Options::cache_dir, "Folder of the cache; see 'lockstep cache'.")
          .add("progress", &Options::progress, "Show a progress bar.");
  return table;
}

void check_options(const lockstep::OptionTable<Options>::Parsed& parsed) {
  const Options& options = parsed.options;
  if (options.languages_are_given() && options.task != "translation") {
    throw lockstep::UsageError(
        fmt::format("--src-lang, --tgt-lang and --forced-bos-token are for --task translation, not for {}.",
                    options.task));
  }
  const bool generates = options.task == "text-generation" || options.task == "translation";
  constexpr const char* kTasks = "with --task text-generation or translation";
  const bool takes_adapter = options.task != "feature-extraction" && !is_program(options);
  program_options::check_dependent_options(option_table(), parsed,
                                           {{"adapter", takes_adapter,
                                             "with a --task other than feature-extraction, and a folder as "
                                             "--model"},
                                            {"max-new-tokens", generates, kTasks},
                                            {"num-beams", generates, kTasks},
                                            {"do-sample", generates, kTasks},
                                            {"temperature", generates, kTasks},
                                            {"top-k", generates, kTasks},
                                            {"top-p", generates, kTasks}});
  if (!options.do_sample.value_or(false)) return;
  if (options.task != "text-generation")
    throw lockstep::UsageError("--do-sample is for --task text-generation, not for " + options.task + ".");
  if (options.num_beams.value_or(1) > 1) {
    throw lockstep::UsageError(
        fmt::format("--do-sample (sampling) and --num-beams {} (beam search) exclude each other: give one.",
                    *options.num_beams));
  }
}
