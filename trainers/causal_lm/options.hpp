#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "options/dependent_options.hpp"
#include "text/adapter.hpp"

/// Options beside the training arguments; `--help` shows the same.
struct Options : lockstep::TrainingArguments, texts::AdapterOptions {
  std::string model;
  bool from_scratch = false;
  std::string tokenizer;
  std::string model_type = "gpt2";
  std::int64_t n_positions = 128;
  std::int64_t n_embd = 128;
  std::int64_t n_layer = 4;
  std::int64_t n_head = 4;

  std::string train_file;
  std::string validation_file;
  std::string data_format = "auto";
  std::string text_column = "text";
  std::int64_t block_size = 0;
  bool packing = false;
  std::string cache_dir;

  std::string prompt;
  std::int64_t sample_tokens = 64;
};

const lockstep::OptionTable<Options>& option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_options(const Options& options);
