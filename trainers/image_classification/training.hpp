#pragma once

#include "images.hpp"
#include "lockstep/train/accelerator.hpp"
#include "options.hpp"

/// Trains for the epochs that the options say, validating after each, then tests and saves the model; goes on
/// from a checkpoint where the options say so. Returns the program's exit code: 0, or kPreemptedExitCode when
/// the job was stopped and has left a checkpoint. *Collective*.
int train_and_test(lockstep::Accelerator& accelerator, const Images& images, const Options& options);
