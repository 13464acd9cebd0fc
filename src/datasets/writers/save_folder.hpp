#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "datasets/arrow/batch_writer.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// Throws UsageError if the data set is mapped from files in `folder`: replacing them would invalidate it.
void require_foreign(const ArrowDataset& dataset, const std::filesystem::path& folder);

/// Writes the rows in record batches of at most `batch_rows` rows and kPieceBytes of values. Throws
/// UsageError if `batch_rows` is below 1.
void write_batches(const ArrowDataset& dataset, std::int64_t batch_rows, arrow_file::BatchWriter& writer);

/// Rows of a data set as the columns of a record batch.
std::vector<ArrayPointer> record_batch(const ArrowDataset& dataset, std::int64_t start, std::int64_t rows);

/// The schema of a file, with the features as `datasets` stores them, without a fingerprint, which it then
/// generates.
std::shared_ptr<arrow::Schema> schema_of(const Features& features);

/// Writes a file with the rows. `make` creates one of the file writers. Returns the hash of the bytes.
std::string write_file(const ArrowDataset& dataset, const std::filesystem::path& path,
                       std::int64_t batch_rows, decltype(arrow_file::stream_writer)& make);

/// Writes the files of save_to_disk into a folder that exists.
void write_folder(const ArrowDataset& dataset, const std::filesystem::path& folder,
                  const SaveOptions& options);

}  // namespace lockstep
