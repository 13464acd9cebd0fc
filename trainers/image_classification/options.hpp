#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/options.hpp"

/// What the program can be told on its command line; `--help` shows the same from options.cpp.
struct Options {
  std::string data;
  std::int64_t resize = 0;
  std::int64_t random_crop_padding = 0;
  bool horizontal_flip = false;
  bool normalize = false;
  std::string model;
  std::string weights;
  std::string mixed_precision = "no";
  std::string output_dir = "out/digits";
  std::int64_t epochs = 15;
  std::int64_t batch_size = 16;
  double learning_rate = 3e-3;
  double weight_decay = 1e-2;
  double validation_fraction = 0.1;
  /// 0.2 where it is not given; the data may have images of their own to test on.
  std::optional<double> test_fraction;
  std::uint64_t seed = 42;
  int num_workers = 1;
  std::string device = "auto";
  std::string backend = "auto";
  std::int64_t timeout = 1800;
  std::string checkpoint_dir;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep_last = 2;
  std::string resume = "auto";
  bool progress = true;
};

const lockstep::OptionTable<Options>& option_table();
