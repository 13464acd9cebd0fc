#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/tensor_source.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// The end of tensors' names in files of old, and today's.
struct OldName {
  std::string in_file, in_model;
  bool operator==(const OldName&) const = default;
};

/// A source for a model's tensors under today's names: LayerNorm.gamma and LayerNorm.beta, TensorFlow's names
/// in BERT's published files, stand for .weight and .bias, as in transformers. A model whose own names end so
/// keeps them. Adds the old names that the source has to `found`.
TensorSource with_todays_names(TensorSource source, const std::vector<NamedTensor>& tensors,
                               std::vector<OldName>& found);

}  // namespace lockstep
