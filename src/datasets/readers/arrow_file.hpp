#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "datasets/arrow/stream_reader.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep::readers {

/// The features that `datasets` writes into a schema, else what it would make of the columns. Throws
/// DataError, naming the file, where they contradict these.
Features features_of(const arrow_file::FileSchema& schema, const std::string& name);

/// A mapped file in Arrow's stream or file format.
ArrowDataset read_arrow_file(const std::filesystem::path& path, bool trusted);
/// A folder of save_to_disk.
ArrowDataset read_arrow_folder(const std::filesystem::path& folder, bool trusted);

/// The rows of finished shards, mapped.
ArrowDataset load_shards(const std::vector<std::filesystem::path>& files);
/// Those of an entry. Throws DataError when it is not there any more.
ArrowDataset open_entry(const std::filesystem::path& entry);

}  // namespace lockstep::readers
