#pragma once

#include <filesystem>

#include "lockstep/data/arrow_dataset.hpp"

namespace lockstep {

/// Throws UsageError when the data set is mapped from files in `folder`: replacing them would pull the rug
/// from under it.
void require_foreign(const ArrowDataset& dataset, const std::filesystem::path& folder);

/// Writes the rows as one file in Arrow's stream format, as ArrowDataset::to_arrow does, but neither in
/// secret nor down to the disk: for a folder that nobody else looks into, and a caller who does the rest.
void write_unsynced(const ArrowDataset& dataset, const std::filesystem::path& path, std::int64_t batch_rows);

/// Writes the files of save_to_disk into a folder that exists.
void write_folder(const ArrowDataset& dataset, const std::filesystem::path& folder,
                  const SaveOptions& options);

}  // namespace lockstep
