#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/util/iterator.h>

#include <algorithm>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {
namespace {

/// The rows as record batches: views where rows are in order in one chunk, otherwise copies.
class Batches {
 public:
  Batches(ArrowDataset dataset, std::shared_ptr<arrow::Schema> schema)
      : dataset_(std::move(dataset)), schema_(std::move(schema)) {}

  arrow::Result<std::shared_ptr<arrow::RecordBatch>> Next() try {
    if (row_ == dataset_.num_rows()) return nullptr;
    auto rows = std::min(arrow_file::kPieceRows, dataset_.num_rows() - row_);
    for (const auto& [name, column] : dataset_.columns()) {
      if (column.rows().is_range()) rows = std::min(rows, arrow_file::rows_in_chunk(column, row_));
    }
    rows = arrow_file::piece_rows(dataset_.columns(), row_, rows);
    auto batch = arrow::RecordBatch::Make(schema_, rows, record_batch(dataset_, row_, rows));
    row_ += rows;
    return batch;
  } catch (const Error& error) {
    return arrow::Status::Invalid(error.what());
  }

 private:
  ArrowDataset dataset_;
  std::shared_ptr<arrow::Schema> schema_;
  std::int64_t row_ = 0;
};

}  // namespace

void ArrowDataset::export_to_c(ArrowArrayStream* stream) const {
  const auto schema = schema_of(features());
  const auto reader = arrow::RecordBatchReader::MakeFromIterator(
      arrow::Iterator<std::shared_ptr<arrow::RecordBatch>>(Batches(*this, schema)), schema);
  const auto status = reader.ok() ? arrow::ExportRecordBatchReader(*reader, stream) : reader.status();
  if (!status.ok()) throw Error("the rows cannot be handed over: " + status.message() + ".");
}

}  // namespace lockstep
