#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace bench {

struct Options {
  std::string collective = "all_reduce";
  std::string min_bytes = "8";
  std::string max_bytes = "128M";
  int step_factor = 2;
  std::string dtype = "float";
  std::string op = "sum";
  std::string backend = "auto";
  std::string device = "cpu";
  int iterations = 20;
  int warmup = 5;
  bool check = true;
  int timeout = 120;
  std::string json;
};

/// The collectives that can be measured, in the order of 'all'.
const std::vector<std::string>& collective_names();

/// The options of lockstep-bench; `lockstep bench comm` uses them as well, without LibTorch.
const lockstep::OptionTable<Options>& option_table();

/// From --min-bytes to --max-bytes by --step-factor. Throws UsageError.
std::vector<std::int64_t> sizes_of(const Options& options);

}  // namespace bench
