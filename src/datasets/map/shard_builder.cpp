#include "datasets/map/shard_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "datasets/arrow/arrow_conversions.hpp"
#include "datasets/readers/readers.hpp"
#include "datasets/table/convert.hpp"
#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
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
  const auto none = columns_.join_parts({});
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
                           write(columns_.join_parts({slice(rows.columns(), start, count)}));
                         });
  fs::remove(before);
}

void ShardBuilder::flush() {
  if (!writer_) open();
  const auto rows = columns_.join_parts(std::move(waiting_));
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
