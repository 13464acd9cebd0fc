#pragma once

#include <filesystem>
#include <string>

#include "lockstep/data/arrow_dataset.hpp"

namespace lockstep::readers {

/// A mapped file in Arrow's stream or file format.
ArrowDataset read_arrow_file(const std::filesystem::path& path, bool trusted);
/// A stream in memory; `name` is for errors.
ArrowDataset read_arrow_bytes(Buffer bytes, const std::string& name);
/// A folder of save_to_disk.
ArrowDataset read_arrow_folder(const std::filesystem::path& folder, bool trusted);

}  // namespace lockstep::readers
