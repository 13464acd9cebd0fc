#include "datasets/arrow/stream_reader.hpp"

#include <arrow/array/data.h>
#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <fmt/core.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string_view>

#include "datasets/arrow/arrow_conversions.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::arrow_file {
namespace {

constexpr std::string_view kMagic = "ARROW1";
constexpr std::uint32_t kContinuation = 0xFFFFFFFF;
/// A larger number of rows can only be corrupt.
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;

using BufferPointer = std::shared_ptr<arrow::Buffer>;
using BatchPointer = std::shared_ptr<arrow::RecordBatch>;

/// The record batches of a stream or a file, in order.
struct Batches {
  std::shared_ptr<arrow::Schema> schema;
  /// The next one; null at the end.
  std::function<arrow::Result<BatchPointer>()> next;
};

bool is_file_format(const arrow::Buffer& bytes) noexcept {
  return std::string_view(bytes).starts_with(kMagic);
}

/// With `column`, only that column is read.
arrow::Result<Batches> open(const BufferPointer& bytes, std::optional<int> column) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
  if (column) options.included_fields = {*column};
  const auto source = std::make_shared<arrow::io::BufferReader>(bytes);
  if (!is_file_format(*bytes)) {
    ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchStreamReader::Open(source, options));
    return Batches{reader->schema(), [reader] { return reader->Next(); }};
  }
  ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchFileReader::Open(source, options));
  const auto next = [reader, batch = 0]() mutable -> arrow::Result<BatchPointer> {
    if (batch == reader->num_record_batches()) return nullptr;
    return reader->ReadRecordBatch(batch++);
  };
  return Batches{reader->schema(), next};
}

bool can_read(const BufferPointer& bytes, int column, std::int64_t batch) {
  const auto batches = open(bytes, column);
  if (!batches.ok()) return false;
  for (std::int64_t each = 0; each <= batch; ++each) {
    if (!batches->next().ok()) return false;
  }
  return true;
}

class Reader {
 public:
  Reader(const BufferPointer& bytes, const std::string& name, bool trusted)
      : bytes_(bytes), file_(std::make_shared<const std::string>(name)), trusted_(trusted) {}

  FileTable read() {
    const Location start(*file_, "the schema");
    const auto batches = open(bytes_, std::nullopt);
    if (!batches.ok()) start.fail(batches.status().message());
    table_.schema = schema_of(*batches->schema, start);
    table_.columns.resize(table_.schema.fields.size());
    for (std::int64_t batch = 0; add(batches->next(), batch); ++batch) {
    }
    return std::move(table_);
  }

 private:
  bool add(const arrow::Result<BatchPointer>& read, std::int64_t number) {
    const Location location(*file_, fmt::format("record batch {}", number));
    if (!read.ok()) fail(location, number, read.status().message());
    const auto& batch = *read;
    if (batch == nullptr) return false;
    if (batch->num_rows() < 0 || batch->num_rows() > kMostRows)
      location.fail(fmt::format("it claims {} rows", batch->num_rows()));
    for (int column = 0; column < batch->num_columns(); ++column) add(*batch, column, number, location);
    table_.rows += batch->num_rows();
    return true;
  }

  void add(const arrow::RecordBatch& batch, int column, std::int64_t number, const Location& location) {
    const auto& name = table_.schema.fields[static_cast<std::size_t>(column)].name;
    const auto at = location.within(fmt::format("column '{}'", name.substr(0, 100)));
    const auto& data = batch.column_data(column);
    if (data->length != batch.num_rows())
      at.fail(fmt::format("it has {} rows, but the batch has {}", data->length, batch.num_rows()));
    table::Chunk chunk{plain_array(data, at)};
    if (!trusted_)
      chunk.unchecked = std::make_shared<const table::FileLocation>(table::FileLocation{file_, number, name});
    table_.columns[static_cast<std::size_t>(column)].push_back(std::move(chunk));
  }

  /// Arrow's errors name no column: names the first one that cannot be read alone, unless none can.
  [[noreturn]] void fail(const Location& location, std::int64_t batch, const std::string& what) const {
    std::string damaged;
    bool any_whole = false;
    for (std::size_t column = 0; column < table_.schema.fields.size(); ++column) {
      const bool whole = can_read(bytes_, static_cast<int>(column), batch);
      any_whole = any_whole || whole;
      if (!whole && damaged.empty()) damaged = table_.schema.fields[column].name.substr(0, 100);
    }
    if (any_whole && !damaged.empty()) location.within(fmt::format("column '{}'", damaged)).fail(what);
    location.fail(what);
  }

  BufferPointer bytes_;
  std::shared_ptr<const std::string> file_;
  bool trusted_;
  FileTable table_;
};

}  // namespace

bool is_arrow(const arrow::Buffer& bytes) noexcept {
  if (is_file_format(bytes)) return true;
  std::uint32_t word = 0;
  if (bytes.size() >= 8) std::memcpy(&word, bytes.data(), sizeof word);
  return word == kContinuation;
}

FileTable read_arrow(const std::shared_ptr<arrow::Buffer>& bytes, const std::string& name, bool trusted) {
  try {
    return Reader(bytes, name, trusted).read();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // A corrupt length may request more memory than is available.
    Location(name, "its content").fail(error.what());
  }
}

}  // namespace lockstep::arrow_file
