#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"

/// Options beside the training arguments; `--help` shows the same.
struct Options : lockstep::TrainingArguments {
  /// Sets the arguments whose defaults differ here.
  Options();

  std::string data;
  std::int64_t resize = 0;
  std::int64_t random_crop_padding = 0;
  bool horizontal_flip = false;
  bool normalize = false;
  double color_jitter = 0;
  double random_erasing = 0;
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
  bool skip_bad = false;
  std::string model;
  std::string weights;
  std::string mixed_precision = "no";
  double validation_fraction = 0.1;
  /// 0.2 if it is not given; the data may have separate test images.
  std::optional<double> test_fraction;
  /// Folder for the model. complete() sets the arguments' output_dir to the folder for checkpoints.
  std::string model_dir;
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;
  std::int64_t early_stopping_patience = 0;
  double ema_decay = 0;
  bool progress = true;
};

const lockstep::OptionTable<Options>& option_table();

/// The options of a command line, with the training arguments that follow from them. Throws UsageError for
/// contradictory options.
Options complete(const lockstep::OptionTable<Options>::Parsed& parsed);
