#pragma once

#include <string>

namespace lockstep::models {

/// What a family does differently: see BartConfig.
struct BartForm {
  const char* model_type;
  /// For messages.
  const char* name;
  /// The class of the weights in Python.
  const char* architecture;
  bool norm_first, normalized_embeddings, final_norm, has_logits_bias;
  enum { learned, sines, sines_without_padding } positions;
  /// The decoder's first token in training is the target's last.
  bool starts_with_last;
};

/// Throws UsageError for a type that is none of these families.
const BartForm& form_of(const std::string& model_type);

}  // namespace lockstep::models
