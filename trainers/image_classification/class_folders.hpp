#pragma once

#include <filesystem>

#include "images.hpp"
#include "options.hpp"

/// Whether `folder` has folders `train` and `val` of images, a folder for each class.
bool has_class_folders(const std::filesystem::path& folder);

/// Images in train/ and val/, and in test/ to test on (without it: those in val/). They are read and decoded
/// when they are needed. Throws UsageError for flags that do not fit, DataError for folders without images
/// and for classes that differ.
Images load_class_folders(const std::filesystem::path& folder, const Options& options);
