#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/models/dpo.hpp"
#include "lockstep/train/training_arguments.hpp"
#include "options/dependent_options.hpp"
#include "text/adapter.hpp"

/// Options beside the training arguments; `--help` shows the same. They have the names of trl's DPOConfig.
struct Options : lockstep::TrainingArguments, texts::AdapterOptions {
  /// trl's: a model that was trained before is to move little.
  Options() { learning_rate = 1e-6; }

  std::string model;
  std::string reference_model;
  std::string tokenizer;
  std::string chat_template_path;

  std::string train_file;
  std::string validation_file;
  std::int64_t max_length = 0;
  std::string truncation_mode = "keep_start";
  std::string cache_dir;

  std::string loss_type = "sigmoid";
  double beta = 0.1;
  double label_smoothing = 0;
  bool disable_dropout = true;
  bool precompute_ref_log_probs = false;
  std::int64_t precompute_ref_batch_size = 0;
};

const lockstep::OptionTable<Options>& option_table();

/// Those that have an effect only together with others.
std::vector<program_options::DependentOption> dependent_options(const Options& options);

/// The options of the loss.
lockstep::models::DpoOptions loss_options(const Options& options);
