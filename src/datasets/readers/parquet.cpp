#include <arrow/array/array_base.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <fmt/core.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "core/input_file.hpp"
#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/arrow/validation.hpp"
#include "datasets/readers/readers.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

constexpr std::int64_t kMostRows = 65536;

using FileReader = parquet::arrow::FileReader;

arrow::Result<std::unique_ptr<FileReader>> open(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  parquet::ArrowReaderProperties properties(true);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(file));
  return builder.properties(properties)->Build();
}

/// The indices of the leaf columns of these columns: Parquet stores each nested field separately.
std::vector<int> leaves_of(const parquet::SchemaDescriptor& schema, const std::vector<std::string>& columns) {
  std::vector<int> leaves;
  for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
    const auto& name = schema.GetColumnRoot(leaf)->name();
    if (columns.empty() || std::find(columns.begin(), columns.end(), name) != columns.end())
      leaves.push_back(leaf);
  }
  return leaves;
}

/// Rows per piece: as many as take kPieceBytes, as far as the file's metadata tell. Arrow reads no nested
/// text of more than 2 GiB at once.
std::int64_t piece_rows(const parquet::FileMetaData& file, const std::vector<int>& leaves) {
  std::int64_t most = kMostRows;
  for (int number = 0; number < file.num_row_groups(); ++number) {
    const auto group = file.RowGroup(number);
    std::int64_t bytes = 1;
    for (const int leaf : leaves) bytes += group->ColumnChunk(leaf)->total_uncompressed_size();
    const auto rows =
        static_cast<double>(group->num_rows()) / static_cast<double>(bytes) * arrow_file::kPieceBytes;
    most = std::min(most, static_cast<std::int64_t>(std::clamp(rows, 1.0, double{kMostRows})));
  }
  return most;
}

void require_columns(const parquet::SchemaDescriptor& schema, const std::vector<std::string>& columns,
                     const std::string& file) {
  for (const auto& column : columns) {
    if (schema.group_node()->FieldIndex(column) >= 0) continue;
    std::string known;
    for (int field = 0; field < schema.group_node()->field_count(); ++field)
      known += fmt::format("{}'{}'", field == 0 ? "" : ", ", schema.group_node()->field(field)->name());
    throw UsageError(
        fmt::format("there is no column '{}' in '{}'; its columns are {}.", column, file, known));
  }
}

/// Whether a column is a dictionary, or has one inside.
bool has_dictionary(const std::shared_ptr<arrow::Field>& field) {
  const auto& parts = field->type()->fields();
  return field->type()->id() == arrow::Type::DICTIONARY ||
         std::any_of(parts.begin(), parts.end(), has_dictionary);
}

class ParquetRows final : public RowSource {
 public:
  ParquetRows(const std::filesystem::path& path, const std::vector<std::string>& columns)
      : location_(path.string(), "its rows") {
    // InputFile's errors for a missing file are clearer than the library's.
    static_cast<void>(InputFile(path));
    guarded([&] {
      file_ = value(open(path.string()));
      std::vector<int> groups(static_cast<std::size_t>(file_->num_row_groups()));
      std::iota(groups.begin(), groups.end(), 0);
      const auto& schema = *file_->parquet_reader()->metadata()->schema();
      require_columns(schema, columns, path.string());
      leaves_ = leaves_of(schema, columns);
      file_->set_batch_size(piece_rows(*file_->parquet_reader()->metadata(), leaves_));
      batches_ = value(file_->GetRecordBatchReader(groups, leaves_));
      // Parquet knows neither seconds nor date64: the columns are of other types than what was written.
      features_ = features_of(arrow_file::schema_of(*batches_->schema(), location_), path.string(), true);
      // Each row group has its own dictionary, and the library joins none inside of a list or a structure.
      const auto& fields = batches_->schema()->fields();
      if (std::any_of(fields.begin(), fields.end(), has_dictionary)) {
        batches_ = value(file_->GetRecordBatchReader({}, leaves_));
        single_groups_ = {groups.begin(), groups.end()};
      }
    });
  }

  const Features& features() const override { return features_; }

  std::vector<ArrayPointer> next() override {
    std::vector<ArrayPointer> columns;
    guarded([&] {
      auto batch = value(batches_->Next());
      while (batch == nullptr && !single_groups_.empty()) {
        batches_ = value(file_->GetRecordBatchReader({single_groups_.front()}, leaves_));
        single_groups_.pop_front();
        batch = value(batches_->Next());
      }
      if (batch == nullptr) return;
      for (int column = 0; column < batch->num_columns(); ++column)
        columns.push_back(column_of(*batch, column));
    });
    return columns;
  }

 private:
  ArrayPointer column_of(const arrow::RecordBatch& batch, int column) const {
    const auto& [name, feature] = features_.items()[static_cast<std::size_t>(column)];
    const auto array = arrow_file::plain_array(batch.column_data(column), location_);
    const auto damage = arrow_file::damage_of(*array->data());
    if (!damage.empty()) fail(fmt::format("column '{}': {}", name, damage));
    const auto& type = feature.type();
    if (array->type()->Equals(type.arrow())) return array;
    try {
      return arrow_file::cast(array, type);
    } catch (const UsageError& error) {
      fail(fmt::format("column '{}': {}", name, error.what()));
    }
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw DataError(fmt::format("'{}' cannot be read as Parquet: {}.", location_.file(), why));
  }

  template <typename T>
  T value(arrow::Result<T> result) const {
    if (!result.ok()) fail(result.status().message());
    return *std::move(result);
  }

  /// Parquet reports some errors as exceptions of its own types.
  template <typename Work>
  void guarded(const Work& work) const {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }

  arrow_file::Location location_;
  std::unique_ptr<FileReader> file_;
  std::vector<int> leaves_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  /// Row groups that are still to be read one at a time.
  std::deque<int> single_groups_;
  Features features_;
};

}  // namespace

std::unique_ptr<RowSource> parquet_rows(const std::filesystem::path& path,
                                        const std::vector<std::string>& columns) {
  return std::make_unique<ParquetRows>(path, columns);
}

}  // namespace lockstep::readers
