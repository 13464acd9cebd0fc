#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "models/compiled/step_program.hpp"

namespace lockstep::models::compiled {

/// The outputs of the training's forward, with the graph of backward if gradients are enabled; the buffers
/// get their new values. `tensors`: parameters, buffers and inputs, checked.
std::vector<at::Tensor> train_forward(const std::shared_ptr<const StepProgram>& program,
                                      const std::vector<at::Tensor>& tensors);

/// The outputs of evaluation.
std::vector<at::Tensor> evaluate(const StepProgram& program, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::models::compiled
