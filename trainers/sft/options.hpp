#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "options/dependent_options.hpp"
#include "text/adapter.hpp"

/// Options beside the training arguments; `--help` shows the same. They have the names of trl's SFTConfig.
struct Options : lockstep::TrainingArguments, texts::AdapterOptions {
  /// trl's: a model that was trained before is to move little.
  Options() { learning_rate = 2e-5; }

  std::string model;
  std::string tokenizer;
  std::string chat_template_path;
  std::string eos_token;

  std::string train_file;
  std::string validation_file;
  std::string data_format = "auto";
  std::string dataset_text_field = "text";
  std::int64_t max_length = 0;
  std::string truncation_mode = "keep_start";
  bool assistant_only_loss = false;
  std::string completion_only_loss = "auto";
  bool packing = false;
  std::string packing_strategy = "bfd";
  std::string cache_dir;
};

const lockstep::OptionTable<Options>& option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_options(const Options& options);
