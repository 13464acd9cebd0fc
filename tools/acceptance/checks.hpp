#pragma once

#include <string>
#include <vector>

#include "lockstep/train/accelerator.hpp"

namespace acceptance {

/// One thing that must hold on every rank. *Collective*. Throws lockstep::Error that says what does not.
struct Check {
  const char* name;
  void (*run)(lockstep::Accelerator& accelerator);
};

std::vector<Check> communication_checks();
std::vector<Check> training_checks();
std::vector<Check> checkpoint_checks();

/// Throws lockstep::Error with the text unless `holds`.
void require(bool holds, const std::string& text);
/// Likewise for two tensors, compared element by element with this relative tolerance.
void require_close(const at::Tensor& found, const at::Tensor& wanted, double tolerance,
                   const std::string& what);

}  // namespace acceptance
