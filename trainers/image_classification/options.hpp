#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/options.hpp"

/// What the program can be told on its command line; `--help` shows the same from options.cpp.
struct Options {
  std::string data;
  std::string model;
  std::string output_dir = "out/digits";
  std::int64_t epochs = 15;
  std::int64_t batch_size = 16;
  double learning_rate = 3e-3;
  double weight_decay = 1e-2;
  double validation_fraction = 0.1;
  double test_fraction = 0.2;
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
