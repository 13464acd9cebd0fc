#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lockstep/data/batch.hpp"

/// Labeled images of a folder: batches of "image", uint8 [images, channels, height, width], and "label",
/// int64 from 0 to classes - 1.
struct ImageFiles {
  lockstep::Batch train;
  /// Set if the folder has separate test images.
  std::optional<lockstep::Batch> test = std::nullopt;
  std::int64_t classes = 0;
  /// The byte that becomes 1 in floating point.
  std::int64_t white = 255;
};

/// Reads a folder. The names of its files determine what it contains:
///   - a file *-images-idx3-ubyte and one *-labels-idx1-ubyte;
///   - two such pairs, *train-... and *t10k-... (or *test-...): MNIST and data sets like it;
///   - data_batch_*.bin, with or without test_batch.bin: CIFAR-10's binary version.
/// IDX files may be compressed (.gz). *Local*. Throws UsageError if the folder has none or several of these,
/// DataError for files that do not match.
ImageFiles read_image_folder(const std::filesystem::path& folder);
