#include "shard_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "datasets/arrow/bridge.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/table/convert.hpp"
#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

const Column* find(const Columns& columns, const std::string& name) {
  for (const auto& [each, column] : columns) {
    if (each == name) return &column;
  }
  return nullptr;
}

std::string list(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("'{}'", fmt::join(names, "', '"));
}

/// The common length of all columns.
std::int64_t length_of(const Columns& made) {
  for (const auto& [name, column] : made) {
    if (column.size() == made.front().second.size()) continue;
    throw UsageError(
        fmt::format("the function returned columns of different lengths: '{}' has {} rows, '{}' has {}.",
                    made.front().first, made.front().second.size(), name, column.size()));
  }
  return made.front().second.size();
}

/// Requires that the source's kept columns have as many rows as the function returned.
void check_rows(const MapBatch& batch, const Columns& made, const std::vector<std::string>& kept) {
  const std::int64_t rows = length_of(made);
  if (rows == batch.size() || kept.empty()) return;
  throw UsageError(
      fmt::format("the function returned {} rows for {}, but the source's columns {} stay. Name them in "
                  "remove_columns, or return them too.",
                  rows, batch.size(), list(kept)));
}

std::vector<std::string> names_of(const std::vector<Field>& fields) {
  std::vector<std::string> names;
  for (const auto& field : fields) names.push_back(field.name);
  return names;
}

}  // namespace

Columns merge_columns(const MapBatch& batch, Columns made, const std::vector<std::string>& removed) {
  Columns result;
  std::vector<std::string> kept;
  for (const auto& [name, column] : batch.rows.columns()) {
    const Column* replaced = find(made, name);
    const bool goes = std::find(removed.begin(), removed.end(), name) != removed.end();
    if (goes) continue;
    if (replaced == nullptr) kept.push_back(name);
    result.emplace_back(name, replaced == nullptr ? column : *replaced);
  }
  if (!made.empty()) check_rows(batch, made, kept);
  for (auto& [name, column] : made) {
    if (find(result, name) == nullptr) result.emplace_back(name, std::move(column));
  }
  return result;
}

ResultColumns::ResultColumns(Features source, std::optional<Features> features)
    : source_(std::move(source)), features_(std::move(features)) {}

bool ResultColumns::add(const std::vector<Field>& fields) {
  if (!known_) {
    known_ = true;
    for (const auto& [name, type, nullable] : fields) fields_.push_back({name, type});
    return true;
  }
  if (names_of(fields) != names_of(fields_)) {
    throw UsageError(fmt::format("the result has the columns {}, but {} before.", list(names_of(fields)),
                                 list(names_of(fields_))));
  }
  bool changed = false;
  for (std::size_t place = 0; place < fields.size(); ++place) {
    const auto& before = fields_[place].type;
    const auto type = arrow_file::unified(before, fields[place].type);
    if (!type) {
      throw UsageError(
          fmt::format("the column '{}' is of type {}, but of type {} before. Return the same type always: "
                      "make_column<T>, or a ColumnBuilder with a type.",
                      fields[place].name, fields[place].type.text(), before.text()));
    }
    changed = changed || !(*type == before);
    fields_[place].type = *type;
  }
  return changed;
}

bool ResultColumns::add(const Columns& part) {
  std::vector<Field> fields;
  for (const auto& [name, column] : part) fields.push_back({name, column.type()});
  return add(fields);
}

void ResultColumns::take_types_for_nulls() {
  for (auto& [name, type, nullable] : fields_) {
    if (type.kind() == TypeKind::null && source_.contains(name)) type = source_[name].type();
  }
}

Columns ResultColumns::aligned(Columns part) const {
  for (std::size_t place = 0; place < part.size(); ++place) {
    auto& [name, column] = part[place];
    if (column.type() == fields_[place].type) continue;
    column = table::converted_column(column, Feature(fields_[place].type), name);
  }
  return part;
}

Feature ResultColumns::feature_of(const Field& field) const {
  if (features_ && features_->contains(field.name)) return (*features_)[field.name];
  if (source_.contains(field.name) && source_[field.name].type() == field.type) return source_[field.name];
  return Feature(field.type);
}

ArrowDataset ResultColumns::joined(std::vector<Columns> parts) const {
  std::vector<std::vector<Column>> pieces(fields_.size());
  for (auto& part : parts) {
    auto columns = aligned(std::move(part));
    for (std::size_t place = 0; place < columns.size(); ++place)
      pieces[place].push_back(std::move(columns[place].second));
  }
  Columns columns;
  std::vector<std::pair<std::string, Feature>> meanings;
  for (std::size_t place = 0; place < fields_.size(); ++place) {
    const auto& field = fields_[place];
    columns.emplace_back(field.name, pieces[place].empty() ? ColumnBuilder(field.type).finish()
                                                           : Column::concatenate(pieces[place]));
    meanings.emplace_back(field.name, feature_of(field));
  }
  return ArrowDataset::from_columns(std::move(columns), Features(std::move(meanings)));
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatchRows = 1000;

/// `count` rows of each column.
Columns slice(const Columns& columns, std::int64_t start, std::int64_t count) {
  Columns some;
  for (const auto& [name, column] : columns) some.emplace_back(name, column.slice(start, count));
  return some;
}

}  // namespace

ShardBuilder::ShardBuilder(fs::path file, ResultColumns columns)
    : file_(std::move(file)), columns_(std::move(columns)) {}

void ShardBuilder::add(Columns part) {
  if (columns_.add(part) && writer_) write_anew();
  const auto rows = part.empty() ? 0 : part.front().second.size();
  arrow_file::each_piece(part, rows, kBatchRows, [&](std::int64_t start, std::int64_t count) {
    add_piece(slice(part, start, count), count);
  });
}

void ShardBuilder::add_piece(Columns piece, std::int64_t rows) {
  const auto bytes = arrow_file::value_bytes(piece, 0, rows);
  if (waiting_bytes_ + bytes > arrow_file::kPieceBytes) flush();
  waiting_.push_back(std::move(piece));
  waiting_rows_ += rows;
  waiting_bytes_ += bytes;
  if (waiting_rows_ >= kBatchRows) flush();
}

std::uint64_t ShardBuilder::finish() {
  flush();
  close();
  return rows_;
}

void ShardBuilder::open() {
  const auto none = columns_.joined({});
  errno = 0;
  stream_.open(file_, std::ios::binary | std::ios::trunc);
  if (!stream_) fail();
  const auto sink = [this](const void* data, std::size_t bytes) {
    stream_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  writer_ = arrow_file::stream_writer(sink, schema_of(none.features()));
}

void ShardBuilder::close() {
  errno = 0;
  writer_->finish();
  writer_.reset();
  stream_.close();
  if (!stream_) fail();
}

/// Rewrites the shard: a column that had only nulls so far now has a type.
void ShardBuilder::write_anew() {
  close();
  fs::path before = file_;
  before += ".before";
  fs::rename(file_, before);
  open();
  const auto rows = readers::load_shards({before});
  arrow_file::each_piece(rows.columns(), rows.num_rows(), kBatchRows,
                         [&](std::int64_t start, std::int64_t count) {
                           write(columns_.joined({slice(rows.columns(), start, count)}));
                         });
  fs::remove(before);
}

void ShardBuilder::flush() {
  if (!writer_) open();
  const auto rows = columns_.joined(std::move(waiting_));
  write(rows);
  rows_ += static_cast<std::uint64_t>(rows.num_rows());
  waiting_.clear();
  waiting_rows_ = 0;
  waiting_bytes_ = 0;
}

void ShardBuilder::write(const ArrowDataset& rows) {
  errno = 0;
  write_batches(rows, kBatchRows, *writer_);
  if (!stream_) fail();
}

void ShardBuilder::fail() const {
  throw Error(fmt::format("cannot write '{}': {}.", file_.string(),
                          errno != 0 ? std::generic_category().message(errno) : "the system gave no reason"));
}

}  // namespace lockstep
