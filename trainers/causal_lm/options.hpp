#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"

/// Options beside the training arguments; `--help` shows the same.
struct Options : lockstep::TrainingArguments {
  std::string model;
  bool from_scratch = false;
  std::string dtype = "float32";
  std::string adapter;
  std::int64_t lora_r = 0;
  double lora_alpha = 16;
  double lora_dropout = 0;
  std::vector<std::string> lora_target_modules;
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
