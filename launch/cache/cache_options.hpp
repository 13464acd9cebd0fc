#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/options.hpp"

namespace lockstep::launch {

/// What `lockstep cache` can be told.
struct CacheOptions {
  std::string dir;
  bool json = false;
  bool all = false;
  std::optional<std::string> older_than;
  std::vector<std::string> names;
};

const OptionTable<CacheOptions>& cache_option_table();

/// "90" (seconds), "30m", "12h", "7d", "2w". Throws UsageError for anything else.
std::chrono::seconds age_from(const std::string& text);

}  // namespace lockstep::launch
