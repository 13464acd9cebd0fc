#pragma once

#include "images.hpp"
#include "lockstep/train/accelerator.hpp"
#include "options.hpp"

/// Trains for the epochs in the options, validates after each, then tests and saves the model; resumes from a
/// checkpoint if the options request it. Returns the program's exit code: 0, or kPreemptedExitCode if the job
/// was preempted and has saved a checkpoint. *Collective*.
int train_and_test(lockstep::Accelerator& accelerator, const Images& images, const Options& options);
