// liblockstep_arrow.so: the only code here that sees Apache Arrow's headers.

#include <arrow/io/file.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <parquet/arrow/reader.h>

#include <exception>

#include "data/readers/parquet_library.hpp"

namespace {

using lockstep::Buffer;

/// Rows a record batch: small enough for the 32-bit offsets of text.
constexpr std::int64_t kBatchRows = 65536;

arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> open(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  parquet::ArrowReaderProperties properties;
  properties.set_batch_size(kBatchRows);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(file));
  return builder.properties(properties)->Build();
}

arrow::Result<std::shared_ptr<arrow::Buffer>> streamed(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const auto reader, open(path));
  ARROW_ASSIGN_OR_RAISE(const auto batches, reader->GetRecordBatchReader());
  ARROW_ASSIGN_OR_RAISE(const auto sink, arrow::io::BufferOutputStream::Create());
  ARROW_ASSIGN_OR_RAISE(const auto writer, arrow::ipc::MakeStreamWriter(sink.get(), batches->schema()));
  for (;;) {
    ARROW_ASSIGN_OR_RAISE(const auto batch, batches->Next());
    if (batch == nullptr) break;
    ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(*batch));
  }
  ARROW_RETURN_NOT_OK(writer->Close());
  return sink->Finish();
}

bool read(const std::string& path, Buffer& stream, std::string& reason) {
  try {
    const auto bytes = streamed(path);
    if (bytes.ok()) {
      stream = {(*bytes)->data(), static_cast<std::size_t>((*bytes)->size()), *bytes};
      return true;
    }
    reason = bytes.status().message();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return false;
}

const lockstep::readers::ParquetLibrary kSelf{lockstep::readers::kParquetLibraryVersion, read};

}  // namespace

extern "C" const lockstep::readers::ParquetLibrary* lockstep_parquet_library() { return &kSelf; }
