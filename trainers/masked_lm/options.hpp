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
  bool from_scratch = false;
  std::string tokenizer;

  std::string train_file;
  std::string validation_file;
  std::string data_format = "auto";
  std::string text_column = "text";
  std::int64_t max_seq_length = 0;
  bool line_by_line = false;
  std::string cache_dir;

  double mlm_probability = 0.15;
  bool whole_word_mask = false;
};

const lockstep::OptionTable<Options>& option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_options(const Options& options);
