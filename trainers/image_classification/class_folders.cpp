#include "class_folders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "lockstep/core/error.hpp"
#include "lockstep/data/image_folder.hpp"
#include "model_images.hpp"

namespace {

using lockstep::ImageFolder;
using lockstep::ImageFolderOptions;
using lockstep::UsageError;
namespace fs = std::filesystem;

/// The normalization of torchvision's references, which weights trained on ImageNet expect.
const ChannelStatistics kImageNet{.mean = {0.485F, 0.456F, 0.406F}, .std = {0.229F, 0.224F, 0.225F}};
/// Images are resized to 256 before the center of 224 is cropped.
constexpr double kResizeRatio = 256.0 / 224.0;
constexpr std::int64_t kImageSize = 224;

void check_flags(const Options& options) {
  if (options.test_fraction)
    throw UsageError("--test-fraction: folders of images are not split; give a folder test/");
  if (options.random_crop_padding > 0)
    throw UsageError(
        "--random-crop-padding: images in folders are already cropped by RandomResizedCrop; leave it out");
}

using MaybeModelImages = std::optional<ModelImages>;

ImageFolderOptions common_options(const Options& options) {
  ImageFolderOptions common;
  common.keep_bytes = true;
  common.skip_bad = options.skip_bad;
  return common;
}

ImageFolderOptions training_options(const Options& options, const lockstep::ImageSize& size,
                                    const MaybeModelImages& of_model) {
  auto training = common_options(options);
  training.random_resized_crop.size = size;
  if (of_model) training.filter = of_model->filter;
  training.color_jitter = {options.color_jitter, options.color_jitter, options.color_jitter, 0};
  training.flip_probability = options.horizontal_flip ? 0.5 : 0;
  // Crops are random and resized, so the pixels of a scaled image are good enough.
  training.scaled_decoding = true;
  return training;
}

ImageFolderOptions evaluation_options(const Options& options, const lockstep::ImageSize& size,
                                      const MaybeModelImages& of_model) {
  auto evaluation = common_options(options);
  if (of_model) {
    evaluation = of_model->evaluation;
    evaluation.mean.clear();
    evaluation.std.clear();
    evaluation.keep_bytes = true;
    evaluation.skip_bad = options.skip_bad;
    return evaluation;
  }
  evaluation.resize = std::llround(static_cast<double>(size.height) * kResizeRatio);
  evaluation.center_crop = size;
  return evaluation;
}

/// The size of all images.
lockstep::ImageSize size_of_images(const Options& options, const MaybeModelImages& of_model) {
  const std::int64_t edge = options.resize > 0 ? options.resize : kImageSize;
  if (!of_model) return {edge, edge};
  if (of_model->size.height > 0) return of_model->size;
  throw UsageError("--model " + options.model +
                   ": its images keep their shape, but those of a batch need one size: give --resize");
}

void check_classes(const ImageFolder& train, const ImageFolder& other, const fs::path& folder) {
  const auto& here = train.classes();
  const auto& there = other.classes();
  if (here == there) return;
  const auto only_in = [](const auto& one, const auto& two) {
    std::vector<std::string> names;
    std::ranges::set_difference(one, two, std::back_inserter(names));
    return names.empty() ? "none" : fmt::format("'{}'", fmt::join(names, "', '"));
  };
  throw lockstep::DataError(
      fmt::format("{}: its classes are not those of train/, so that labels would mean others: only train/ "
                  "has {}, only {} "
                  "has {}. Give each the same folders",
                  folder.string(), only_in(here, there), folder.filename().string(), only_in(there, here)));
}

}  // namespace

bool has_class_folders(const fs::path& folder) {
  return fs::is_directory(folder / "train") && fs::is_directory(folder / "val");
}

Images load_class_folders(const fs::path& folder, const Options& options) {
  check_flags(options);
  const auto of_model = model_images(options);
  const auto size = size_of_images(options, of_model);
  // Images are normalized here only if random erasing or mixup needs floats; otherwise on the device.
  auto training = training_options(options, size, of_model);
  training.random_erasing.probability = options.random_erasing;
  auto evaluation = evaluation_options(options, size, of_model);
  const bool floats = options.random_erasing > 0 || options.mixup_alpha > 0;
  ChannelStatistics statistics;
  if (options.normalize) statistics = kImageNet;
  if (of_model) statistics = of_model->statistics;
  if (floats) {
    for (auto* part : {&training, &evaluation}) {
      part->keep_bytes = false;
      part->mean = statistics.mean;
      part->std = statistics.std;
    }
  }
  const auto train = std::make_shared<const ImageFolder>(folder / "train", training);
  const auto validation = std::make_shared<const ImageFolder>(folder / "val", evaluation);
  check_classes(*train, *validation, folder / "val");
  auto test = validation;
  if (fs::is_directory(folder / "test")) {
    test = std::make_shared<const ImageFolder>(folder / "test", evaluation);
    check_classes(*train, *test, folder / "test");
  }
  const auto classes = static_cast<std::int64_t>(train->classes().size());
  Images images{.train = train,
                .validation = validation,
                .test = test,
                .channels = 3,
                .height = size.height,
                .width = size.width,
                .classes = classes,
                .class_names = train->classes(),
                .statistics = statistics,
                .folders = {train, validation},
                .of_model = of_model};
  if (test != validation) images.folders.push_back(test);
  if (options.mixup_alpha > 0 || options.cutmix_alpha > 0) {
    images.train = lockstep::mixed(
        train,
        {.mixup_alpha = options.mixup_alpha, .cutmix_alpha = options.cutmix_alpha, .classes = classes});
  }
  return images;
}
