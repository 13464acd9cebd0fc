#include "models.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained.hpp"

namespace {

using lockstep::Accelerator;
using lockstep::UsageError;
using lockstep::models::ResNet;
using lockstep::models::ResNetOptions;
using lockstep::models::ScriptModel;
using lockstep::models::SmallConvNet;

constexpr const char* kResNet18 = "resnet18";
constexpr const char* kResNet50 = "resnet50";
/// Up to this size in pixels, the first layers of ImageNet's ResNet would shrink images to almost nothing.
constexpr std::int64_t kSmallImage = 64;

/// Loads --weights. Layers whose names begin with `head` are new if the file's are for other classes.
template <class Model>
void begin_with_weights(const Accelerator& accelerator, Model& model, const std::string& head,
                        const Options& options) {
  if (options.weights.empty()) return;
  auto tensors = lockstep::parallel::named_parameters_of(model);
  for (auto& buffer : lockstep::parallel::named_buffers_of(model)) tensors.push_back(std::move(buffer));
  const auto report = lockstep::models::load_pretrained(options.weights, tensors, {.replaced_heads = {head}});
  for (const auto& name : report.initialized) accelerator.print("new: ", name);
}

/// Batch normalization needs more than one value per channel. Reports a batch of one pixel now instead of at
/// the end of the first epoch.
void check_batches(const Accelerator& accelerator, const Images& images, const Options& options) {
  // The size is halved three times.
  constexpr std::int64_t kOnePixelInTheEnd = 8;
  if (std::max(images.height, images.width) > kOnePixelInTheEnd) return;
  // With several ranks, all batches are completed.
  const bool last_is_single =
      accelerator.num_processes() == 1 && images.train->size() % options.per_device_train_batch_size == 1;
  if (options.per_device_train_batch_size > 1 && !last_is_single) return;
  throw UsageError(fmt::format(
      "--batch-size {} leaves a batch of one out of {} images, but batch normalization in --model {} needs "
      "more for images of {} x {} pixels: choose a different batch size",
      options.per_device_train_batch_size, images.train->size(), options.model, images.height, images.width));
}

}  // namespace

ModelKind model_kind(const Options& options) {
  if (options.model.empty() || options.model == "small") return ModelKind::small;
  if (options.model == kResNet18 || options.model == kResNet50) return ModelKind::resnet;
  if (std::filesystem::is_directory(options.model)) return ModelKind::folder;
  return ModelKind::script;
}

void check_model(const Options& options) {
  const auto kind = model_kind(options);
  if (kind == ModelKind::folder) check_model_folder(options);
  if (kind != ModelKind::script) return;
  if (!std::filesystem::exists(options.model)) {
    throw UsageError("--model " + options.model +
                     ": expected small, resnet18, resnet50, the folder of a model or a TorchScript file, and "
                     "there is no such file");
  }
  if (options.weights.empty()) return;
  throw UsageError("--weights " + options.weights + " cannot be loaded into the TorchScript file " +
                   options.model + ", which has weights of its own: leave one of the two out");
}

SmallConvNet small_model(const Accelerator& accelerator, const Images& images, const Options& options) {
  SmallConvNet model(lockstep::models::SmallConvNetOptions{.channels = images.channels,
                                                           .height = images.height,
                                                           .width = images.width,
                                                           .classes = images.classes});
  begin_with_weights(accelerator, model, "output.", options);
  return model;
}

ResNet resnet_model(const Accelerator& accelerator, const Images& images, const Options& options) {
  check_batches(accelerator, images, options);
  auto form = options.model == kResNet50 ? ResNetOptions::resnet50(images.classes)
                                         : ResNetOptions::resnet18(images.classes);
  form.in_channels = images.channels;
  form.small_images = std::max(images.height, images.width) <= kSmallImage;
  ResNet model(form);
  begin_with_weights(accelerator, model, "fc.", options);
  return model;
}

ScriptModel script_model(const Images& images, const Options& options) {
  ScriptModel model(options.model);
  model.check_fits(
      {torch::zeros({2, images.channels, images.height, images.width})}, {2, images.classes},
      fmt::format("--model {} does not fit these images of {} classes", options.model, images.classes));
  return model;
}
