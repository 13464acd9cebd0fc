#pragma once

#include <string>

namespace lockstep::train {

/// The name of a metric in logs, and what metric_for_best_model means: with the prefix "eval" (or "test",
/// ...) and an underscore in front, once, as in transformers.
inline std::string with_prefix(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix + "_") ? name : prefix + "_" + name;
}

}  // namespace lockstep::train
