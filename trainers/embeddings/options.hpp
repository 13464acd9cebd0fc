#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/models/in_batch_negatives.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "options/dependent_options.hpp"

/// Options beside the training arguments; `--help` shows the same.
struct Options : lockstep::TrainingArguments {
  std::string model;
  std::string tokenizer;
  std::string dtype = "float32";

  std::string train_file;
  std::string validation_file;
  std::vector<std::string> text_columns;
  std::string score_column = "score";
  std::string query_prompt;
  std::string document_prompt;
  std::int64_t max_length = 0;
  std::string cache_dir;

  double scale = 20;
  std::string similarity = "cosine";
  bool symmetric = false;
  std::int64_t mini_batch_size = 0;
};

const lockstep::OptionTable<Options>& option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_options(const Options& options);

/// The options of the loss.
lockstep::models::InBatchNegativesOptions loss_options(const Options& options);
