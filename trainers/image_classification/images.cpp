#include "images.hpp"

#include <torch/types.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/idx.hpp"

namespace {

using lockstep::DataError;
using lockstep::Dataset;
using lockstep::UsageError;
namespace fs = std::filesystem;

/// The digits that come with Lockstep: beside an installed program, or in the repository that it was built
/// in.
fs::path own_digits() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const auto* place : {"../share/lockstep/digits", "../../data/digits"}) {
    if (fs::is_directory(folder / place)) return (folder / place).lexically_normal();
  }
  throw UsageError("the digits that come with Lockstep are not beside " + folder.string() +
                   ": name a folder of IDX files with --data");
}

fs::path only_file(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with(ending)) found.push_back(entry.path());
  }
  if (found.size() == 1) return found.front();
  throw UsageError("--data " + folder.string() + ": expected one file *" + ending + ", but there are " +
                   std::to_string(found.size()));
}

at::Tensor read_images(const fs::path& path) {
  at::Tensor images = lockstep::read_idx(path);
  if (images.dim() != 3 || images.scalar_type() != torch::kByte || images.numel() == 0) {
    throw DataError(path.string() +
                    ": expected unsigned bytes in three dimensions [images, height, width], none of 0");
  }
  images = images.unsqueeze(1).to(torch::kFloat);
  return images / images.max().clamp_min(1);
}

at::Tensor read_labels(const fs::path& path, std::int64_t count) {
  const at::Tensor labels = lockstep::read_idx(path);
  if (labels.dim() != 1 || labels.scalar_type() != torch::kByte || labels.size(0) != count) {
    throw DataError(path.string() + ": expected " + std::to_string(count) +
                    " unsigned bytes in one dimension, a label for each image");
  }
  return labels.to(torch::kLong);
}

std::array<std::int64_t, 3> part_sizes(std::int64_t count, const Options& options) {
  const auto share = [&](double fraction) {
    return static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(count)));
  };
  const std::int64_t validation = share(options.validation_fraction);
  const std::int64_t test = share(options.test_fraction);
  const std::int64_t train = count - validation - test;
  if (train < 1 || validation < 1 || test < 1) {
    throw UsageError("--validation-fraction and --test-fraction split " + std::to_string(count) +
                     " images into " + std::to_string(train) + " for training, " +
                     std::to_string(validation) + " for validation and " + std::to_string(test) +
                     " for the test: each needs at least one");
  }
  return {train, validation, test};
}

}  // namespace

Images load_images(const Options& options) {
  const fs::path folder = options.data.empty() ? own_digits() : fs::path(options.data);
  if (!fs::is_directory(folder)) throw UsageError("--data " + folder.string() + " is no folder");
  const at::Tensor images = read_images(only_file(folder, "-images-idx3-ubyte"));
  const at::Tensor labels = read_labels(only_file(folder, "-labels-idx1-ubyte"), images.size(0));
  const auto all =
      std::make_shared<lockstep::TensorDataset>(lockstep::Batch{{"image", images}, {"label", labels}});
  const auto parts = lockstep::random_split(all, part_sizes(images.size(0), options), options.seed);
  return {.train = parts[0],
          .validation = parts[1],
          .test = parts[2],
          .height = images.size(2),
          .width = images.size(3),
          .classes = labels.max().item<std::int64_t>() + 1};
}

std::shared_ptr<const Dataset> share_of(const std::shared_ptr<const Dataset>& dataset, int rank, int size) {
  std::vector<std::int64_t> indices;
  for (std::int64_t index = rank; index < dataset->size(); index += size) indices.push_back(index);
  return std::make_shared<lockstep::Subset>(dataset, std::move(indices));
}
