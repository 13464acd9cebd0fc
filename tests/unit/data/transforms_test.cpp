#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/image_folder.hpp"
#include "lockstep/data/image_transforms.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

const std::vector<float> kMean{0.4914F, 0.4822F, 0.4465F};
const std::vector<float> kStd{0.2470F, 0.2435F, 0.2616F};

at::Tensor images(std::int64_t rows, std::int64_t height = 8, std::int64_t width = 6) {
  return (at::arange(rows * 3 * height * width) * 37)
      .remainder(256)
      .view({rows, 3, height, width})
      .to(at::kByte);
}

std::vector<SampleContext> contexts(std::int64_t rows, std::uint64_t first = 0) {
  std::vector<SampleContext> all;
  for (std::int64_t row = 0; row < rows; ++row)
    all.push_back({.seed = first + static_cast<std::uint64_t>(row)});
  return all;
}

/// What torchvision's ToTensor and Normalize compute.
at::Tensor normalized(const at::Tensor& bytes) {
  const auto column = [](const std::vector<float>& values) {
    return at::tensor(at::ArrayRef<float>(values), at::kFloat).view({3, 1, 1});
  };
  return bytes.to(at::kFloat).div(255).sub(column(kMean)).div(column(kStd));
}

TEST(ImageTransform, NormalisesWithTorchvisionsBits) {
  const ImageTransform transform({.mean = kMean, .std = kStd});
  const at::Tensor bytes = images(5);
  EXPECT_TRUE(at::equal(transform(bytes, contexts(5)), normalized(bytes)));
  const at::Tensor floats = bytes.to(at::kFloat).div(255);
  EXPECT_TRUE(at::equal(transform(floats, contexts(5)), normalized(bytes)));
}

TEST(ImageTransform, BytesBecomeFractionsWithoutAnyOption) {
  const at::Tensor bytes = images(2);
  EXPECT_TRUE(at::equal(ImageTransform({})(bytes, contexts(2)), bytes.to(at::kFloat).div(255)));
}

TEST(ImageTransform, TakesEitherLayout) {
  const ImageTransformOptions options{
      .crop = {8, 6}, .padding = 2, .flip_probability = 0.5, .mean = kMean, .std = kStd};
  auto hwc = options;
  hwc.layout = ImageLayout::hwc;
  const at::Tensor bytes = images(9);
  EXPECT_TRUE(at::equal(ImageTransform(hwc)(bytes.permute({0, 2, 3, 1}).contiguous(), contexts(9)),
                        ImageTransform(options)(bytes, contexts(9))));
}

/// The window and the flip that make `result` of `image`, as "top left flip"; nothing when there is none.
std::set<std::string> windows_of(const at::Tensor& image, const at::Tensor& result, std::int64_t padding) {
  const at::Tensor padded = at::constant_pad_nd(image, {padding, padding, padding, padding}, 0);
  std::set<std::string> found;
  for (std::int64_t top = 0; top + result.size(1) <= padded.size(1); ++top) {
    for (std::int64_t left = 0; left + result.size(2) <= padded.size(2); ++left) {
      const at::Tensor window =
          normalized(padded.narrow(1, top, result.size(1)).narrow(2, left, result.size(2)));
      const auto name = std::to_string(top) + " " + std::to_string(left);
      if (at::equal(window, result)) found.insert(name);
      if (at::equal(window.flip(2), result)) found.insert(name + " flip");
    }
  }
  return found;
}

TEST(ImageTransform, EveryResultIsAWindowOfThePaddedImageAndEveryWindowOccurs) {
  const ImageTransform transform(
      {.crop = {7, 5}, .padding = 1, .flip_probability = 0.5, .mean = kMean, .std = kStd});
  constexpr std::int64_t kRows = 600;
  const at::Tensor bytes = images(1).expand({kRows, 3, 8, 6}).contiguous();
  const at::Tensor results = transform(bytes, contexts(kRows));
  std::map<std::string, int> seen;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto windows = windows_of(bytes[row], results[row], 1);
    ASSERT_EQ(windows.size(), 1U) << row;
    ++seen[*windows.begin()];
  }
  // 4 x 4 windows, mirrored or not: about 19 of each.
  EXPECT_EQ(seen.size(), 32U);
  for (const auto& [window, count] : seen) EXPECT_TRUE(count > 3 && count < 50) << window << ": " << count;
}

TEST(ImageTransform, AFlipCanBeCertain) {
  const at::Tensor bytes = images(3);
  const ImageTransform transform({.flip_probability = 1, .mean = kMean, .std = kStd});
  EXPECT_TRUE(at::equal(transform(bytes, contexts(3)), normalized(bytes.flip(3))));
}

TEST(ImageTransform, ResizesAsTorchvisionResizesTensors) {
  const at::Tensor bytes = images(2, 20, 17);
  const at::Tensor small =
      at::_upsample_bilinear2d_aa(bytes.to(at::kFloat), {7, 9}, false).round().to(at::kByte);
  const ImageTransform transform({.resize = {7, 9}, .mean = kMean, .std = kStd});
  EXPECT_TRUE(at::equal(transform(bytes, contexts(2)), normalized(small)));
  // ATen's kernel for channels last gives other values for a width of 1.
  const at::Tensor narrow =
      at::_upsample_bilinear2d_aa(bytes.to(at::kFloat), {7, 1}, false).round().to(at::kByte);
  const ImageTransform column({.layout = ImageLayout::hwc, .resize = {7, 1}, .mean = kMean, .std = kStd});
  EXPECT_TRUE(at::equal(column(bytes.permute({0, 2, 3, 1}).contiguous(), contexts(2)), normalized(narrow)));
}

TEST(ImageTransform, ALoaderGivesTheSameImagesWhateverItsWorkers) {
  const auto data = std::make_shared<TensorDataset>(Batch{{"image", images(40)}, {"label", at::arange(40)}});
  const auto augmented = transformed(data, "image", {.crop = {8, 6}, .padding = 3, .flip_probability = 0.5});
  const auto epoch = [&](int workers, std::int64_t number) {
    DataLoader loader(augmented, {.batch_size = 7, .shuffle = true, .num_workers = workers, .seed = 3});
    loader.set_epoch(number);
    std::vector<at::Tensor> all;
    for (auto& batch : loader) all.push_back(batch["image"]);
    return at::cat(all);
  };
  EXPECT_TRUE(at::equal(epoch(0, 0), epoch(3, 0)));
  EXPECT_FALSE(at::equal(epoch(0, 0), epoch(0, 1)));
  const Example one = augmented->get(5, {.seed = 11});
  const Batch rows = augmented->get_batch(std::vector<std::int64_t>{4, 5}, contexts(2, 10));
  EXPECT_TRUE(at::equal(one["image"], rows["image"][1]));
  EXPECT_EQ(rows.indices, (std::vector<std::int64_t>{4, 5}));
}

TEST(ImageTransform, RefusesWhatItCannotDo) {
  EXPECT_THROWS(ImageTransform({.crop = {-1, 3}}), UsageError, "crop", "-1 x 3");
  EXPECT_THROWS(ImageTransform({.crop = {1 << 21, 3}}), UsageError, "crop", "1 to 2^20 pixels a side");
  EXPECT_THROWS(ImageTransform({.padding = 2}), UsageError, "padding needs a crop");
  EXPECT_THROWS(ImageTransform({.flip_probability = 1.5}), UsageError, "flip_probability", "1.5");
  EXPECT_THROWS(ImageTransform({.mean = {1}}), UsageError, "mean has 1", "std has 0");
  EXPECT_THROWS(ImageTransform({.mean = {1}, .std = {0}}), UsageError, "std must not be 0");
  const ImageTransform large({.crop = {9, 6}});
  EXPECT_THROWS(large(images(1), contexts(1)), UsageError, "9 x 6", "8 x 6");
  const ImageTransform grey({.mean = {0}, .std = {1}});
  EXPECT_THROWS(grey(images(1), contexts(1)), UsageError, "1 numbers", "3 channels");
  EXPECT_THROWS(grey(at::zeros({2, 3}), contexts(2)), UsageError, "2 dimensions");
  EXPECT_THROWS(grey(images(2), contexts(1)), UsageError, "1 contexts", "2 images");
}

TEST(ImageFolder, LargeSizesAreRefused) {
  const std::int64_t side = 1 << 17;
  EXPECT_THROWS(ImageFolder("/none", {.random_resized_crop = {.size = {side, 8}}}), UsageError,
                "random_resized_crop", "1 to 2^16 pixels a side", "131072 x 8");
  EXPECT_THROWS(ImageFolder("/none", {.center_crop = {8, side}}), UsageError, "center_crop", "2^16");
}

}  // namespace
}  // namespace lockstep
