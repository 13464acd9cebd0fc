#include "datasets/stream/table_rows.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/readers/packed_file.hpp"
#include "datasets/readers/readers.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::stream {
namespace {

/// A file of a table, one piece of rows at a time.
class TableRows final : public ShardRows {
 public:
  TableRows(const std::filesystem::path& path, FileFormat format, const LoadOptions& options,
            const TakeBadLine& take_bad, std::shared_ptr<FirstFile> first)
      : options_(options),
        unpacked_(path, take_bad && format != FileFormat::parquet),
        first_(has_types(format) ? std::move(first) : nullptr) {
    if (format == FileFormat::arrow) {
      whole_ = readers::read_arrow_file(unpacked_.path(), options.trusted);
    } else {
      file_ = readers::row_file(path, format, options, take_bad);
      source_ = file_.open(unpacked_.path(), readers::Types::of_the_beginning);
    }
  }

  std::optional<Row> next() override {
    if (!has_row()) return std::nullopt;
    Row row;
    row.reserve(piece_.columns().size());
    for (const auto& [name, column] : piece_.columns()) row.emplace_back(name, column.value(row_));
    ++row_;
    return row;
  }

  std::int64_t skip(std::int64_t count) override {
    std::int64_t done = 0;
    while (done < count && has_row()) {
      const auto some = std::min(count - done, piece_.num_rows() - row_);
      row_ += some;
      done += some;
    }
    return done;
  }

 private:
  bool has_row() {
    while (row_ == piece_.num_rows()) {
      auto piece = whole_ ? std::exchange(whole_, std::nullopt) : read_piece();
      if (!piece && unpacked_.damage()) std::rethrow_exception(unpacked_.damage());
      if (!piece) return false;
      piece_ = readers::with_options(*std::move(piece), options_);
      if (first_) piece_ = first_->with_its_units(std::move(piece_));
      row_ = 0;
    }
    return true;
  }

  std::optional<ArrowDataset> read_piece() {
    if (!source_) return std::nullopt;
    try {
      auto piece = piece_of(source_->next());
      if (piece) read_ += piece->num_rows();
      return piece;
    } catch (const readers::TypesTooNarrow&) {
      source_ = file_.open(unpacked_.path(), readers::Types::of_all_rows);
    }
    // Rows that were returned already do not change: skip them.
    const auto given = std::exchange(read_, 0);
    auto piece = read_piece();
    while (piece && read_ <= given) piece = read_piece();
    return piece ? piece->skip(piece->num_rows() - (read_ - given)) : piece;
  }

  std::optional<ArrowDataset> piece_of(std::vector<ArrayPointer> arrays) {
    if (arrays.empty()) return std::nullopt;
    const auto& features = source_->features();
    std::vector<std::pair<std::string, Column>> columns;
    for (std::size_t index = 0; index < arrays.size(); ++index)
      columns.emplace_back(features.items()[index].first, Column(arrays[index]));
    return ArrowDataset::from_columns(std::move(columns), features);
  }

  LoadOptions options_;
  readers::UnpackedFile unpacked_;
  std::shared_ptr<FirstFile> first_;
  readers::RowFile file_;
  std::unique_ptr<readers::RowSource> source_;
  std::optional<ArrowDataset> whole_;
  ArrowDataset piece_;
  std::int64_t row_ = 0;
  /// Rows of all pieces so far.
  std::int64_t read_ = 0;
};

}  // namespace

std::unique_ptr<ShardRows> table_rows(const std::filesystem::path& path, FileFormat format,
                                      const LoadOptions& options, const TakeBadLine& take_bad,
                                      std::shared_ptr<FirstFile> first) {
  return std::make_unique<TableRows>(path, format, options, take_bad, std::move(first));
}

}  // namespace lockstep::stream
