#pragma once

#include "images.hpp"
#include "lockstep/train/accelerator.hpp"
#include "options.hpp"

#ifdef LOCKSTEP_MODEL_FOLDERS
#include "lockstep/models/image_classifier.hpp"
#endif

// A --model that is the folder of a vision model of the hub. A build that was set up for the demo alone
// leaves these models out (LOCKSTEP_MODEL_FOLDERS), because they would take longer to compile than all the
// rest.

/// Throws UsageError for flags that contradict it, and in a build without such models; DataError for a folder
/// without a model for images. *Local*.
void check_model_folder(const Options& options);

/// Saves what the trained model's folder has beside the weights, if it came from a folder. Other models have
/// nothing else. *Local*, on the main process.
template <class Model>
void save_folder(const Model& /*model*/, const Images& /*images*/, const Options& /*options*/) {}

#ifdef LOCKSTEP_MODEL_FOLDERS
/// The model for these images, with a new classifier if the folder's has other classes. Throws UsageError for
/// unsuitable images. *Local*.
lockstep::models::ImageClassifier folder_model(const lockstep::Accelerator& accelerator, const Images& images,
                                               const Options& options);
void save_folder(const lockstep::models::ImageClassifier& model, const Images& images,
                 const Options& options);
#endif
