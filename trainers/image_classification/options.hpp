#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/options.hpp"
#include "lockstep/train/training_arguments.hpp"

/// What the program can be told beside the arguments of every training; `--help` shows the same.
struct Options : lockstep::TrainingArguments {
  /// Those of the arguments that have other defaults here.
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
  /// 0.2 where it is not given; the data may have images of their own to test on.
  std::optional<double> test_fraction;
  /// Folder for the model. The arguments' output_dir is that of the checkpoints once complete() has seen
  /// them.
  std::string model_dir;
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;
  std::int64_t early_stopping_patience = 0;
  double ema_decay = 0;
  bool progress = true;
};

const lockstep::OptionTable<Options>& option_table();

/// The options of a command line, with the arguments of the training that follow from them. Throws UsageError
/// for those that contradict each other.
Options complete(const lockstep::OptionTable<Options>::Parsed& parsed);
