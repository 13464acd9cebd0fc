#pragma once

#include "lockstep/train/process_execution.hpp"

namespace lockstep::train {

/// The point of a place at which its main process has finished.
inline constexpr const char* kReleased = "released";

/// A place at which rank 0 goes first and the others wait for nobody: for a process that replaces a lost one,
/// after the others have passed. *Local*.
MainProcessFirst released_place(int rank);

}  // namespace lockstep::train
