#include <arrow/array/data.h>
#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>

#include <algorithm>

#include "datasets/arrow/bridge.hpp"
#include "datasets/table/take.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/arrow_dataset.hpp"
#include "save_folder.hpp"

namespace lockstep {
namespace {

/// The rows of a data set as record batches: views of the pieces that lie in order, copies of others.
class DatasetBatches final : public arrow::RecordBatchReader {
 public:
  explicit DatasetBatches(ArrowDataset dataset)
      : dataset_(std::move(dataset)),
        schema_(arrow_file::to_arrow(dataset_.features().fields(), schema_metadata(dataset_.features()))) {}

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* batch) override {
    try {
      *batch = next();
      return arrow::Status::OK();
    } catch (const Error& error) {
      return arrow::Status::Invalid(error.what());
    }
  }

 private:
  static constexpr std::int64_t kMostRows = 65536;

  std::shared_ptr<arrow::RecordBatch> next() {
    if (row_ == dataset_.num_rows()) return nullptr;
    auto rows = std::min(kMostRows, dataset_.num_rows() - row_);
    for (const auto& [name, column] : dataset_.columns()) rows = std::min(rows, in_order(column));
    std::vector<std::shared_ptr<arrow::ArrayData>> columns;
    for (const auto& [name, column] : dataset_.columns()) columns.push_back(piece(column, rows));
    row_ += rows;
    return arrow::RecordBatch::Make(schema_, rows, std::move(columns));
  }

  /// How many rows from here on lie in one piece of a column.
  std::int64_t in_order(const Column& column) const {
    if (!column.rows().is_range()) return kMostRows;
    const auto& data = *column.data();
    const auto place = data.locate(column.rows()[row_]);
    return data.chunks()[place.chunk]->length - place.row;
  }

  std::shared_ptr<arrow::ArrayData> piece(const Column& column, std::int64_t rows) const {
    const auto& data = *column.data();
    if (!column.rows().is_range()) {
      return arrow_file::to_arrow(
          table::copy_ranges(column.type(), table::ranges_of(data, column.rows(), row_, rows)));
    }
    const auto place = data.locate(column.rows()[row_]);
    return arrow_file::to_arrow(data.chunks()[place.chunk])->Slice(place.row, rows);
  }

  ArrowDataset dataset_;
  std::shared_ptr<arrow::Schema> schema_;
  std::int64_t row_ = 0;
};

}  // namespace

void ArrowDataset::export_to_c(ArrowArrayStream* stream) const {
  const auto status = arrow::ExportRecordBatchReader(std::make_shared<DatasetBatches>(*this), stream);
  if (!status.ok()) throw Error("the rows cannot be handed over: " + status.message() + ".");
}

}  // namespace lockstep
