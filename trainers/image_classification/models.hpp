#pragma once

#include "images.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/models/script_model.hpp"
#include "lockstep/models/small_conv_net.hpp"
#include "lockstep/train/accelerator.hpp"
#include "model_folder.hpp"
#include "options.hpp"

/// Throws UsageError for an invalid --model and for flags that contradict it. *Local*.
void check_model(const Options& options);

/// Kinds of models that --model may name.
enum class ModelKind { small, resnet, folder, script };
ModelKind model_kind(const Options& options);

/// The models for these images, with the weights of --weights if it is given. Throw UsageError for unsuitable
/// images, DataError if the file does not match. *Local*.
lockstep::models::SmallConvNet small_model(const lockstep::Accelerator& accelerator, const Images& images,
                                           const Options& options);
lockstep::models::ResNet resnet_model(const lockstep::Accelerator& accelerator, const Images& images,
                                      const Options& options);
lockstep::models::ScriptModel script_model(const Images& images, const Options& options);

/// Calls `use` with the model that the options name and returns its result.
template <class Use>
auto with_model(const lockstep::Accelerator& accelerator, const Images& images, const Options& options,
                const Use& use) {
  switch (model_kind(options)) {
    case ModelKind::small:
      return use(small_model(accelerator, images, options));
    case ModelKind::resnet:
      return use(resnet_model(accelerator, images, options));
    case ModelKind::folder:
#ifdef LOCKSTEP_MODEL_FOLDERS
      return use(folder_model(accelerator, images, options));
#endif
    case ModelKind::script:
      break;
  }
  return use(script_model(images, options));
}
