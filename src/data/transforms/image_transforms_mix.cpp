#include <ATen/ATen.h>
#include <fmt/core.h>

#include "data/images/draw.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/image_transforms.hpp"

namespace lockstep {
namespace {

/// Makes the draws independent of those for the first row's crop.
constexpr std::uint64_t kOwnSequence = 0x6D69786564ULL;

void check_mix(const MixOptions& options) {
  if (options.mixup_alpha < 0 || options.cutmix_alpha < 0 || options.classes < 1 ||
      (options.mixup_alpha == 0 && options.cutmix_alpha == 0))
    throw UsageError("mix_batch: an alpha must be above 0, none below, and the number of classes be given.");
}

void check_batch(const Batch& batch, const MixOptions& options) {
  const auto& image = batch["image"];
  const auto& label = batch["label"];
  if (image.dim() != 4 || label.dim() != 1 || label.scalar_type() != at::kLong ||
      label.size(0) != image.size(0))
    throw UsageError(
        "mix_batch: expects \"image\" [rows, channels, height, width] and \"label\" int64 [rows].");
  if (options.mixup_alpha > 0 && !image.is_floating_point())
    throw UsageError("mix_batch: mixup needs images in floating point; bytes can be mixed by cutmix.");
  if (label.numel() > 0 &&
      (label.min().item<std::int64_t>() < 0 || label.max().item<std::int64_t>() >= options.classes))
    throw DataError(fmt::format("mix_batch: a label is not one of the {} classes.", options.classes));
}

at::Tensor mix(const at::Tensor& values, double lambda) {
  return values.roll(1, 0).mul_(1 - lambda).add_(values.mul(lambda));
}

at::Tensor labels_of(const Batch& batch, const MixOptions& options, double lambda) {
  const auto one_hot = at::one_hot(batch["label"], options.classes).to(at::kFloat);
  return mix(one_hot, lambda);
}

}  // namespace

Batch mix_batch(Batch batch, const MixOptions& options, std::uint64_t seed) {
  check_mix(options);
  check_batch(batch, options);
  RandomBits random(seed ^ kOwnSequence);
  const bool both = options.mixup_alpha > 0 && options.cutmix_alpha > 0;
  const bool by_mixup = both ? random.below(2) == 0 : options.mixup_alpha > 0;
  const auto image = batch["image"];
  double lambda = images::draw_beta(by_mixup ? options.mixup_alpha : options.cutmix_alpha, random);
  if (by_mixup) {
    batch.set("image", mix(image, lambda));
  } else {
    const auto width = static_cast<int>(image.size(3)), height = static_cast<int>(image.size(2));
    const auto part = images::draw_cutmix(width, height, lambda, random);
    const auto window = [&](const at::Tensor& of) {
      return of.narrow(2, part.top, part.height).narrow(3, part.left, part.width);
    };
    const auto result = image.clone();
    window(result).copy_(window(image.roll(1, 0)));
    batch.set("image", result);
    lambda = 1.0 - static_cast<double>(part.width) * part.height / (static_cast<double>(width) * height);
  }
  batch.set("label", labels_of(batch, options, lambda));
  return batch;
}

std::shared_ptr<const Dataset> mixed(std::shared_ptr<const Dataset> dataset, MixOptions options) {
  check_mix(options);
  return std::make_shared<const TransformedDataset>(
      std::move(dataset), [options](Batch batch, std::span<const SampleContext> contexts) {
        return contexts.empty() ? batch : mix_batch(std::move(batch), options, contexts.front().seed);
      });
}

}  // namespace lockstep
