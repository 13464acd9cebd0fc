#pragma once

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/lora_config.hpp"

namespace lockstep::models {

/// Whether `name` is `end`, or ends with it behind a dot.
bool ends_with_name(const std::string& name, const std::string& end);

/// Which modules of a model a LoraConfig means, by PEFT's rules.
class LoraTargets {
 public:
  /// Throws UsageError for regular expressions that are none, and for fields that contradict each other.
  explicit LoraTargets(const LoraConfig& config);

  /// Whether target_modules names the module, and nothing excludes it.
  bool contain(const std::string& module) const;
  /// Whether it is left out: by exclude_modules, or as a part of what is trained whole.
  bool exclude(const std::string& module) const;
  /// What the configuration names although no module is meant by it, as the beginning of a message; null if
  /// all its lists are used. `modules` are the names of all modules.
  std::optional<std::string> find_unused(const std::vector<std::string>& modules) const;
  std::int64_t rank_of(const std::string& module) const;
  /// Times which the product of this layer's matrices counts.
  double scaling_of(const std::string& module) const;

 private:
  template <class Value>
  using Patterns = std::vector<std::pair<std::regex, Value>>;

  bool is_in_layers(const std::string& module) const;
  /// The number of the block that has the module, if layers_pattern finds one.
  std::optional<std::int64_t> block_of(const std::string& module) const;

  LoraConfig config_;
  std::optional<std::regex> target_, excluded_;
  std::vector<std::regex> layers_;
  Patterns<std::int64_t> ranks_;
  Patterns<double> alphas_;
};

}  // namespace lockstep::models
