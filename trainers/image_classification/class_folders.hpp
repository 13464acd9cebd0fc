#pragma once

#include <filesystem>

#include "images.hpp"
#include "options.hpp"

/// Whether `folder` has folders `train` and `val` with one folder of images per class.
bool has_class_folders(const std::filesystem::path& folder);

/// Images in train/ and val/, and test images in test/ (otherwise those in val/). They are read and decoded
/// when they are needed. Throws UsageError for unsuitable flags, DataError for folders without images and for
/// different classes.
Images load_class_folders(const std::filesystem::path& folder, const Options& options);
