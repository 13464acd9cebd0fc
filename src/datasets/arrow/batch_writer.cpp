#include "datasets/arrow/batch_writer.hpp"

#include <arrow/io/interfaces.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>

#include <exception>

#include "lockstep/core/error.hpp"

namespace lockstep::arrow_file {
namespace {

/// An Arrow output stream that calls a function. An exception of the function is stored and rethrown outside
/// Arrow's code.
class SinkStream final : public arrow::io::OutputStream {
 public:
  explicit SinkStream(Sink sink) : sink_(std::move(sink)) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return written_; }
  arrow::Status Write(const void* data, std::int64_t bytes) override {
    try {
      sink_(data, static_cast<std::size_t>(bytes));
    } catch (...) {
      failure_ = std::current_exception();
      return arrow::Status::IOError("the file cannot be written");
    }
    written_ += bytes;
    return arrow::Status::OK();
  }

  void check_status(const arrow::Status& status) const {
    if (failure_) std::rethrow_exception(failure_);
    if (!status.ok()) throw Error("cannot write the rows: " + status.message() + ".");
  }

 private:
  Sink sink_;
  std::exception_ptr failure_;
  std::int64_t written_ = 0;
  bool closed_ = false;
};

/// `Writer` is one of Arrow's two writers of record batches.
template <typename Writer>
class ArrowWriter final : public BatchWriter {
 public:
  using Open = std::function<arrow::Result<std::shared_ptr<Writer>>(const std::shared_ptr<SinkStream>&,
                                                                    const std::shared_ptr<arrow::Schema>&)>;

  ArrowWriter(Sink sink, std::shared_ptr<arrow::Schema> schema, const Open& open)
      : stream_(std::make_shared<SinkStream>(std::move(sink))), schema_(std::move(schema)) {
    auto writer = open(stream_, schema_);
    stream_->check_status(writer.status());
    writer_ = *std::move(writer);
  }

  void write(std::span<const ArrayPointer> columns, std::int64_t rows) override {
    const arrow::ArrayVector arrays(columns.begin(), columns.end());
    const auto batch = arrow::RecordBatch::Make(schema_, rows, arrays);
    // Each batch is a row group: one that takes several keeps them in memory.
    if constexpr (std::is_same_v<Writer, parquet::arrow::FileWriter>)
      stream_->check_status(writer_->NewBufferedRowGroup());
    stream_->check_status(writer_->WriteRecordBatch(*batch));
  }
  void finish() override { stream_->check_status(writer_->Close()); }

 private:
  std::shared_ptr<SinkStream> stream_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<Writer> writer_;
};

}  // namespace

std::unique_ptr<BatchWriter> stream_writer(Sink sink, std::shared_ptr<arrow::Schema> schema) {
  using Writer = arrow::ipc::RecordBatchWriter;
  return std::make_unique<ArrowWriter<Writer>>(
      std::move(sink), std::move(schema),
      [](const auto& stream, const auto& columns) { return arrow::ipc::MakeStreamWriter(stream, columns); });
}

std::unique_ptr<BatchWriter> parquet_writer(Sink sink, std::shared_ptr<arrow::Schema> schema) {
  using Writer = parquet::arrow::FileWriter;
  return std::make_unique<ArrowWriter<Writer>>(
      std::move(sink), std::move(schema), [](const auto& stream, const auto& columns) {
        const auto properties =
            parquet::WriterProperties::Builder().compression(arrow::Compression::SNAPPY)->build();
        // With Arrow's schema in the file, types and text are restored exactly.
        const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
        auto writer =
            Writer::Open(*columns, arrow::default_memory_pool(), stream, properties, arrow_properties);
        return writer.ok() ? arrow::Result<std::shared_ptr<Writer>>(*std::move(writer)) : writer.status();
      });
}

}  // namespace lockstep::arrow_file
