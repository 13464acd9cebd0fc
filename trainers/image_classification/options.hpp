#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/options.hpp"

/// What the program can be told on its command line; `--help` shows the same from options.cpp.
struct Options {
  std::string data;
  std::string output_dir = "out/digits";
  std::int64_t epochs = 20;
  std::int64_t batch_size = 32;
  double learning_rate = 2e-3;
  double weight_decay = 1e-2;
  double validation_fraction = 0.1;
  double test_fraction = 0.2;
  std::uint64_t seed = 42;
  int num_workers = 1;
  std::string device = "auto";
  std::string backend = "auto";
  std::int64_t timeout = 1800;
  bool progress = true;
};

const lockstep::OptionTable<Options>& option_table();
