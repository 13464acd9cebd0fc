#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "options/dependent_options.hpp"

/// Options beside the training arguments; `--help` shows the same.
struct Options : lockstep::TrainingArguments {
  std::string model;
  std::string tokenizer;
  bool new_classifier = false;
  std::int64_t max_length = 128;

  std::string train_file;
  std::string validation_file;
  std::string text_column = "text";
  std::string pair_column;
  std::string label_column = "label";
  std::string cache_dir;
};

const lockstep::OptionTable<Options>& option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_options(const Options& options);
