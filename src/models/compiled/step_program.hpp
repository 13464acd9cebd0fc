#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <vector>

#include "models/compiled/step_description.hpp"

namespace lockstep::models::compiled {

/// Computes the results of a graph from its arguments.
using Graph = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// What a folder of lockstep_export.py does. Immutable; a training's autograd nodes hold it too.
struct StepProgram {
  StepDescription description;
  Graph forward, backward, evaluation;
};

/// Throws DataError, with the file and the reason, as CompiledStepImpl does.
StepProgram load_step_program(const std::filesystem::path& folder);

/// Runs a graph without autograd and autocast. Throws Error if it fails.
std::vector<at::Tensor> run(const Graph& graph, const std::vector<at::Tensor>& arguments);

/// The tensor, or a copy of it that lies in memory as the code expects.
at::Tensor laid_out(const at::Tensor& tensor, const Layout& layout);

}  // namespace lockstep::models::compiled
