#pragma once

#include "images.hpp"
#include "lockstep/train/accelerator.hpp"
#include "options.hpp"

/// Trains for the epochs that the options say, validating after each, then tests and saves the model.
/// *Collective*.
void train_and_test(const lockstep::Accelerator& accelerator, const Images& images, const Options& options);
