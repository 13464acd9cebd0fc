#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "options/dependent_options.hpp"
#include "text/languages.hpp"

/// Options beside the training arguments; `--help` shows the same.
struct Options : lockstep::TrainingArguments, texts::Languages {
  std::string model;
  std::string tokenizer;
  std::string model_type = "bart";
  std::int64_t d_model = 128;
  std::int64_t layers = 2;
  std::int64_t heads = 4;

  std::string train_file;
  std::string train_target_file;
  std::string validation_file;
  std::string validation_target_file;
  std::string data_format = "auto";
  std::string source_column = "source";
  std::string target_column = "target";
  std::int64_t max_source_length = 128;
  std::int64_t max_target_length = 128;
  std::string cache_dir;

  /// Without a value: as in the model's folder.
  std::optional<std::int64_t> num_beams;
  std::int64_t samples = 3;
};

const lockstep::OptionTable<Options>& option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_options(const Options& options);
