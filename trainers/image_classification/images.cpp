#include "images.hpp"

#include <fmt/core.h>
#include <torch/types.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "class_folders.hpp"
#include "image_folder.hpp"
#include "lockstep/core/error.hpp"
#include "model_images.hpp"

namespace {

using lockstep::Batch;
using lockstep::Dataset;
using lockstep::Subset;
using lockstep::UsageError;
namespace fs = std::filesystem;

/// The digits included with Lockstep: beside an installed program, or in the repository that it was built in.
fs::path own_digits() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const auto* place : {"../share/lockstep/digits", "../../data/digits"}) {
    if (fs::is_directory(folder / place)) return (folder / place).lexically_normal();
  }
  throw UsageError("the digits that come with Lockstep are not beside " + folder.string() +
                   ": name a folder of images with --data");
}

constexpr double kTestFraction = 0.2;

/// How many of `count` images are for training, validation and test; 0 for the test if there are separate
/// test images.
std::array<std::int64_t, 3> part_sizes(std::int64_t count, bool own_test, const Options& options) {
  const auto share = [&](double fraction) {
    return static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(count)));
  };
  const std::int64_t validation = share(options.validation_fraction);
  const std::int64_t test = own_test ? 0 : share(options.test_fraction.value_or(kTestFraction));
  const std::int64_t train = count - validation - test;
  if (train >= 1 && validation >= 1 && (own_test || test >= 1)) return {train, validation, test};
  throw UsageError(fmt::format(
      "{}{} images into {} for training, {} for validation{}: each needs at least one",
      own_test ? "--validation-fraction splits " : "--validation-fraction and --test-fraction split ", count,
      train, validation, own_test ? "" : fmt::format(" and {} for the test", test)));
}

/// Images in memory, which a training that is resumed must find again: as many others are other ones.
class ImagesInMemory final : public Dataset {
 public:
  /// Keeps bytes as bytes until a batch is normalized: a quarter of the memory.
  ImagesInMemory(const Batch& batch, std::int64_t white)
      : tensors_(Batch{{"image", scaled(batch["image"], white)}, {"label", batch["label"]}}),
        fingerprint_(fmt::format("{} images (pixels {}, labels {})", batch.size(), sum_of(batch["image"]),
                                 sum_of(batch["label"]))) {}

  std::int64_t size() const override { return tensors_.size(); }
  lockstep::Example get(std::int64_t index, const lockstep::SampleContext& context) const override {
    return tensors_.get(index, context);
  }
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const lockstep::SampleContext> contexts) const override {
    return tensors_.get_batch(indices, contexts);
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  static at::Tensor scaled(const at::Tensor& images, std::int64_t white) {
    constexpr std::int64_t kLargestByte = 255;
    return white == kLargestByte ? images : images.to(torch::kFloat) / white;
  }

  /// Of whole numbers, each row with its place as its weight.
  static std::int64_t sum_of(const at::Tensor& rows) {
    const at::Tensor sums = rows.reshape({rows.size(0), -1}).sum(1, /*keepdim=*/false, torch::kLong);
    return (sums * torch::arange(1, rows.size(0) + 1)).sum().item<std::int64_t>();
  }

  lockstep::TensorDataset tensors_;
  std::string fingerprint_;
};

std::shared_ptr<const Dataset> dataset_of(const Batch& batch, std::int64_t white) {
  return std::make_shared<ImagesInMemory>(batch, white);
}

fs::path data_folder(const Options& options) {
  const fs::path folder = options.data.empty() ? own_digits() : fs::path(options.data);
  if (!fs::is_directory(folder)) throw UsageError(fmt::format("--data {} is not a folder", folder.string()));
  return folder;
}

void check_test_fraction(const ImageFiles& files, const Options& options) {
  if (files.test && options.test_fraction)
    throw UsageError("--test-fraction: the data already has test images; leave it out");
}

void check_folder_flags(const Options& options) {
  if (!options.skip_bad && options.color_jitter == 0 && options.random_erasing == 0 &&
      options.mixup_alpha == 0 && options.cutmix_alpha == 0)
    return;
  throw UsageError(
      "--skip-bad, --color-jitter, --random-erasing, --mixup-alpha and --cutmix-alpha are for folders of "
      "images: "
      "--data needs folders train/ and val/");
}

/// The steps of the model's folder for images in memory, after `augmentation`, if there is any. Images stay
/// bytes, of three channels.
std::shared_ptr<const Dataset> processed(std::shared_ptr<const Dataset> dataset, const ModelImages& of_model,
                                         const lockstep::ImageTransformOptions& augmentation) {
  const auto transform = std::make_shared<const lockstep::ImageTransform>(augmentation);
  return std::make_shared<const lockstep::TransformedDataset>(
      std::move(dataset),
      [resize = of_model.resize, transform](Batch batch, std::span<const lockstep::SampleContext> contexts) {
        // Bytes that were divided by 255, which gives them back.
        const at::Tensor bytes = (*transform)(batch["image"], contexts).mul(255).round().to(torch::kByte);
        const at::Tensor resized = resize(bytes);
        batch.set("image", resized.expand({-1, 3, -1, -1}).contiguous());
        return batch;
      });
}

/// The parts of images in memory, for a model that is a folder.
Images images_for_model(const ImageFiles& files, const std::vector<std::shared_ptr<const Subset>>& parts,
                        const ModelImages& of_model, const Options& options) {
  const at::Tensor& pixels = files.train["image"];
  const auto size = of_model.keeps_size ? lockstep::ImageSize{pixels.size(2), pixels.size(3)} : of_model.size;
  if (size.height == 0) {
    throw UsageError(
        fmt::format("--model {}: its images keep their shape, but those of a batch need one size: give "
                    "--resize",
                    options.model));
  }
  Options plain = options;
  plain.resize = 0;
  const auto augmentation = training_transform(plain, {}, {pixels.size(2), pixels.size(3)});
  const auto evaluated = [&](const std::shared_ptr<const Dataset>& dataset) {
    return processed(dataset, of_model, {});
  };
  return {.train = processed(parts[0], of_model, augmentation),
          .validation = evaluated(parts[1]),
          .test = evaluated(files.test ? dataset_of(*files.test, files.white) : parts[2]),
          .channels = 3,
          .height = size.height,
          .width = size.width,
          .classes = files.classes,
          .statistics = of_model.statistics,
          .of_model = of_model};
}

at::Tensor images_of(const Batch& batch, const Subset& part) {
  return batch["image"].index_select(0, torch::tensor(part.indices()));
}

Images images_in(const fs::path& folder, const Options& options) {
  if (has_class_folders(folder)) return load_class_folders(folder, options);
  check_folder_flags(options);
  const ImageFiles files = read_image_folder(folder);
  check_test_fraction(files, options);
  const at::Tensor& pixels = files.train["image"];
  const auto sizes = part_sizes(pixels.size(0), files.test.has_value(), options);
  const auto parts = lockstep::random_split(dataset_of(files.train, files.white), sizes, options.seed);
  if (const auto of_model = model_images(options)) return images_for_model(files, parts, *of_model, options);
  ChannelStatistics statistics;
  if (options.normalize) statistics = channel_statistics(images_of(files.train, *parts[0]), files.white);
  const auto evaluated = [&](const std::shared_ptr<const Dataset>& dataset) {
    return lockstep::transformed(dataset, "image", evaluation_transform(options, statistics));
  };
  const lockstep::ImageSize size{pixels.size(2), pixels.size(3)};
  return {.train = lockstep::transformed(parts[0], "image", training_transform(options, statistics, size)),
          .validation = evaluated(parts[1]),
          .test = evaluated(files.test ? dataset_of(*files.test, files.white) : parts[2]),
          .channels = pixels.size(1),
          .height = options.resize > 0 ? options.resize : size.height,
          .width = options.resize > 0 ? options.resize : size.width,
          .classes = files.classes,
          .statistics = statistics};
}

}  // namespace

at::Tensor model_input(const Images& images, const at::Tensor& batch) {
  if (batch.scalar_type() != torch::kByte) return batch;
  return lockstep::normalize_images(batch, images.statistics.mean, images.statistics.std);
}

Images load_images(const Options& options) {
  const fs::path folder = data_folder(options);
  Images images = images_in(folder, options);
  if (images.classes >= 2) return images;
  throw lockstep::DataError(fmt::format(
      "{}: its images are of one class only{}: expected two or more. Is it one folder too high or "
      "too deep?",
      folder.string(), images.class_names.empty() ? "" : ", '" + images.class_names.front() + "'"));
}
