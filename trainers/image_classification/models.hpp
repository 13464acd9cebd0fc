#pragma once

#include "images.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/models/script_model.hpp"
#include "lockstep/models/small_conv_net.hpp"
#include "lockstep/train/accelerator.hpp"
#include "options.hpp"

/// Throws UsageError for a --model that is none, and for flags that contradict it. *Local*.
void check_model(const Options& options);

/// What --model may mean.
enum class ModelKind { small, resnet, script };
ModelKind model_kind(const Options& options);

/// The networks for these images, with the weights of --weights where it is given. Throw UsageError for
/// images that they cannot take, DataError for a file that does not fit. *Local*.
lockstep::models::SmallConvNet small_model(const lockstep::Accelerator& accelerator, const Images& images,
                                           const Options& options);
lockstep::models::ResNet resnet_model(const lockstep::Accelerator& accelerator, const Images& images,
                                      const Options& options);
lockstep::models::ScriptModel script_model(const Images& images, const Options& options);

/// Calls `use` with the model that the options name and returns what it returns.
template <class Use>
auto with_model(const lockstep::Accelerator& accelerator, const Images& images, const Options& options,
                const Use& use) {
  switch (model_kind(options)) {
    case ModelKind::small:
      return use(small_model(accelerator, images, options));
    case ModelKind::resnet:
      return use(resnet_model(accelerator, images, options));
    case ModelKind::script:
      break;
  }
  return use(script_model(images, options));
}
