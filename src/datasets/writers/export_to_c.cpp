#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/util/iterator.h>

#include <algorithm>

#include "datasets/arrow/bridge.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "save_folder.hpp"

namespace lockstep {
namespace {

/// Number of rows beginning at `row`, at most 65,536, that are in one chunk of a column. If rows are out of
/// order, they are copied, so any number will do.
std::int64_t in_order(const Column& column, std::int64_t row) {
  const auto most = std::min<std::int64_t>(65536, column.size() - row);
  if (!column.rows().is_range()) return most;
  const auto& data = *column.data();
  const auto table_row = column.rows()[row];
  return std::min(most, data.start(data.locate(table_row).chunk + 1) - table_row);
}

/// The rows as record batches: views where rows are in order in one chunk, otherwise copies.
class Batches {
 public:
  Batches(ArrowDataset dataset, std::shared_ptr<arrow::Schema> schema)
      : dataset_(std::move(dataset)), schema_(std::move(schema)) {}

  arrow::Result<std::shared_ptr<arrow::RecordBatch>> Next() try {
    if (row_ == dataset_.num_rows()) return nullptr;
    auto rows = dataset_.num_rows() - row_;
    for (const auto& [name, column] : dataset_.columns()) rows = std::min(rows, in_order(column, row_));
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
