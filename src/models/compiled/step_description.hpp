#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::models::compiled {

/// How a tensor lay in memory when the step was exported. The code takes no other.
struct Layout {
  std::vector<std::int64_t> sizes, strides;
  at::ScalarType dtype;
};

struct StateTensor {
  std::string name;
  Layout layout;
  bool requires_grad;
};

/// What an argument or a result of a graph is: the parameter, buffer, input or output with this number, a
/// tensor that forward keeps for backward, or the gradient of an output.
struct Place {
  enum class Kind { parameter, buffer, input, output, saved, tangent } kind;
  std::size_t index;
};

struct StepGraph {
  std::vector<Place> arguments, results;
  /// The calls, of an exact step.
  nlohmann::json calls;
};

/// step.json, which lockstep_export.py writes.
struct StepDescription {
  std::string identity;
  bool is_exact;
  std::vector<StateTensor> parameters, buffers;
  std::vector<Layout> inputs;
  std::vector<std::string> output_names;
  /// Of the gradient of each output; none of those without one.
  std::vector<std::optional<Layout>> tangents;
  std::size_t saved;
  StepGraph forward, backward, evaluation;
};

/// The dtype by its name in Python ("float32"). Throws DataError for an unknown one.
at::ScalarType dtype_named(const std::string& name);

/// Throws DataError if the file is not such a description, and if this process cannot run the step: another
/// version of LibTorch, another kind of processor, or one that lacks instructions.
StepDescription read_step_description(const std::filesystem::path& path);

}  // namespace lockstep::models::compiled
