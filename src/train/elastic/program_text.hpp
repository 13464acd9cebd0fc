#pragma once

#include <string>

#include "lockstep/train/accelerator.hpp"

namespace lockstep::train {

/// What this process is and has prepared, as a JSON object: its files (executable and libraries), arguments,
/// and the shapes and numbers of the objects. All processes of a rank must have the same, because they take
/// each other's state. *Local*.
std::string program_text(const Accelerator& accelerator);

}  // namespace lockstep::train
