#include "image_folder.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/cifar10.hpp"
#include "lockstep/data/idx.hpp"

namespace {

using lockstep::Batch;
using lockstep::DataError;
using lockstep::UsageError;
namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

const std::string kImages = "-images-idx3-ubyte";
const std::string kLabels = "-labels-idx1-ubyte";

/// The relevant files, each list sorted by name.
struct Listing {
  fs::path folder;
  Paths images = {};
  Paths labels = {};
  Paths cifar_train = {};
  Paths cifar_test = {};
  Paths compressed = {};
  /// The file of CIFAR-10's Python version instead of data_batch_1.bin.
  bool pickled = false;
};

UsageError misfit(const Listing& listing, const std::string& text) {
  return UsageError(fmt::format("--data {}: {}", listing.folder.string(), text));
}

void note(Listing& listing, const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.ends_with(kImages)) listing.images.push_back(path);
  if (name.ends_with(kLabels)) listing.labels.push_back(path);
  if (name.starts_with("data_batch_") && name.ends_with(".bin")) listing.cifar_train.push_back(path);
  if (name == "test_batch.bin") listing.cifar_test.push_back(path);
  if (name.ends_with(kImages + ".gz") || name.ends_with(kLabels + ".gz")) listing.compressed.push_back(path);
  if (name == "data_batch_1") listing.pickled = true;
}

/// Ignores compressed files whose decompressed file is beside them, as torchvision leaves them.
void add_compressed(Listing& listing) {
  for (const auto& path : listing.compressed) {
    const fs::path unpacked = fs::path(path).replace_extension();
    if (fs::exists(unpacked)) continue;
    (unpacked.string().ends_with(kImages) ? listing.images : listing.labels).push_back(path);
  }
}

Listing list(const fs::path& folder) {
  Listing listing{.folder = folder};
  for (const auto& entry : fs::directory_iterator(folder)) note(listing, entry.path());
  add_compressed(listing);
  for (auto* paths : {&listing.images, &listing.labels, &listing.cifar_train})
    std::sort(paths->begin(), paths->end());
  return listing;
}

at::Tensor read_images(const fs::path& path) {
  const at::Tensor images = lockstep::read_idx(path);
  if (images.dim() != 3 || images.scalar_type() != torch::kByte || images.numel() == 0) {
    throw DataError(path.string() +
                    ": expected unsigned bytes in three dimensions [images, height, width], none of 0");
  }
  return images.unsqueeze(1);
}

at::Tensor read_labels(const fs::path& path, std::int64_t count) {
  const at::Tensor labels = lockstep::read_idx(path);
  if (labels.dim() != 1 || labels.scalar_type() != torch::kByte || labels.size(0) != count) {
    throw DataError(fmt::format("{}: expected {} unsigned bytes in one dimension, a label for each image",
                                path.string(), count));
  }
  return labels.to(torch::kLong);
}

Batch read_pair(const fs::path& images_path, const fs::path& labels_path) {
  const at::Tensor images = read_images(images_path);
  return {{"image", images}, {"label", read_labels(labels_path, images.size(0))}};
}

/// Checks that test images have the shape and the classes of training images.
void check_test(const ImageFiles& files, const fs::path& images, const fs::path& labels) {
  const auto shape = files.train["image"].sizes().slice(1);
  const auto test_shape = (*files.test)["image"].sizes().slice(1);
  if (test_shape != shape) {
    throw DataError(fmt::format("{}: the images have {} x {} pixels, but those to train on have {} x {}",
                                images.string(), test_shape[1], test_shape[2], shape[1], shape[2]));
  }
  const auto largest = (*files.test)["label"].max().item<std::int64_t>();
  if (largest < files.classes) return;
  throw DataError(fmt::format("{}: the label {} is not one of the {} classes of the training images",
                              labels.string(), largest, files.classes));
}

ImageFiles with_white_of_train(Batch train) {
  const auto classes = train["label"].max().item<std::int64_t>() + 1;
  const auto white = std::max<std::int64_t>(train["image"].max().item<std::int64_t>(), 1);
  return {.train = std::move(train), .classes = classes, .white = white};
}

/// The file with this ending; empty if there is none.
fs::path find(const Paths& paths, const std::string& ending) {
  const auto found = std::find_if(paths.begin(), paths.end(), [&](const fs::path& path) {
    const auto name = path.filename().string();
    return name.ends_with(ending) || name.ends_with(ending + ".gz");
  });
  return found == paths.end() ? fs::path() : *found;
}

ImageFiles read_mnist(const Listing& listing) {
  const bool t10k = !find(listing.images, "t10k" + kImages).empty();
  const std::string test = t10k ? "t10k" : "test";
  const fs::path images = find(listing.images, test + kImages);
  const fs::path labels = find(listing.labels, test + kLabels);
  const fs::path train_images = find(listing.images, "train" + kImages);
  const fs::path train_labels = find(listing.labels, "train" + kLabels);
  for (const auto* path : {&images, &labels, &train_images, &train_labels}) {
    if (path->empty())
      throw misfit(listing,
                   "of two pairs of IDX files one must be *train-... and one *t10k-... or *test-...");
  }
  ImageFiles files = with_white_of_train(read_pair(train_images, train_labels));
  files.test = read_pair(images, labels);
  check_test(files, images, labels);
  return files;
}

ImageFiles read_idx_files(const Listing& listing) {
  if (listing.images.size() == 2 && listing.labels.size() == 2) return read_mnist(listing);
  const auto check_single = [&](const Paths& paths, const std::string& ending) {
    if (paths.size() != 1)
      throw misfit(listing, fmt::format("expected one file *{}, but there are {}", ending, paths.size()));
  };
  check_single(listing.images, kImages);
  check_single(listing.labels, kLabels);
  return with_white_of_train(read_pair(listing.images.front(), listing.labels.front()));
}

ImageFiles read_cifar(const Listing& listing) {
  if (listing.cifar_train.empty()) throw misfit(listing, "there is test_batch.bin, but no data_batch_*.bin");
  constexpr std::int64_t kClasses = 10;
  ImageFiles files{.train = lockstep::read_cifar10(listing.cifar_train), .classes = kClasses};
  if (!listing.cifar_test.empty()) files.test = lockstep::read_cifar10(listing.cifar_test);
  return files;
}

/// ", but folders test, train", for an error.
std::string folders_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) names.insert(entry.path().filename());
  }
  return names.empty() ? "" : fmt::format(", but folders {}", fmt::join(names, ", "));
}

}  // namespace

ImageFiles read_image_folder(const fs::path& folder) {
  const Listing listing = list(folder);
  const bool idx = !listing.images.empty() || !listing.labels.empty();
  const bool cifar = !listing.cifar_train.empty() || !listing.cifar_test.empty();
  if (idx && cifar) throw misfit(listing, "IDX and CIFAR-10 files are in the same folder: separate them");
  if (idx) return read_idx_files(listing);
  if (cifar) return read_cifar(listing);
  if (listing.pickled)
    throw misfit(listing,
                 "this is CIFAR-10 for Python: fetch the binary version, data_batch_1.bin and so on");
  throw misfit(listing,
               "expected one file *" + kImages + " and one *" + kLabels +
                   ", MNIST's four, CIFAR-10's data_batch_*.bin, or folders train and val, each with a "
                   "folder of images for each class; there are 0 of these" +
                   folders_in(folder));
}
