#include "shard_builder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "datasets/writers/save_folder.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatchRows = 1000;
constexpr std::size_t kMostBytes = std::size_t{32} << 20;

std::size_t bytes_of(const ArrayData& array) {
  std::size_t bytes = array.validity.bytes + array.offsets.bytes + array.values.bytes;
  for (const auto& child : array.children) bytes += bytes_of(*child);
  return bytes;
}

/// What lies in memory for a part; what is mapped from the source's files costs none.
std::size_t bytes_of(const Columns& part) {
  std::size_t bytes = 0;
  for (const auto& [name, column] : part) {
    if (column.data()->source_files()) continue;
    for (const auto& chunk : column.data()->chunks()) bytes += bytes_of(*chunk);
  }
  return bytes;
}

ArrowDataset load_shard(const fs::path& file) {
  LoadOptions options;
  options.format = FileFormat::arrow;
  options.trusted = true;
  return ArrowDataset::load(file, options);
}

}  // namespace

ShardBuilder::ShardBuilder(fs::path file, ResultColumns columns)
    : file_(std::move(file)), columns_(std::move(columns)) {}

void ShardBuilder::add(Columns part) {
  if (columns_.add(part) && writer_) write_anew();
  waiting_rows_ += part.empty() ? 0 : part.front().second.size();
  waiting_bytes_ += bytes_of(part);
  waiting_.push_back(std::move(part));
  if (waiting_rows_ >= kBatchRows || waiting_bytes_ >= kMostBytes) flush();
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
  writer_ = arrow_file::stream_writer(sink, none.features().fields(), schema_metadata(none.features()));
}

void ShardBuilder::close() {
  errno = 0;
  writer_->finish();
  writer_.reset();
  stream_.close();
  if (!stream_) fail();
}

/// The rows so far had nothing but nulls where there is a type now.
void ShardBuilder::write_anew() {
  close();
  fs::path before = file_;
  before += ".before";
  fs::rename(file_, before);
  open();
  const auto rows = load_shard(before);
  for (std::int64_t first = 0; first < rows.num_rows(); first += kBatchRows) {
    const auto some = rows.slice(first, std::min(kBatchRows, rows.num_rows() - first));
    write(columns_.joined({some.columns()}));
  }
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
  for (std::int64_t first = 0; first < rows.num_rows(); first += kBatchRows) {
    const auto count = std::min(kBatchRows, rows.num_rows() - first);
    writer_->write(record_batch(rows, first, count), count);
  }
  if (!stream_) fail();
}

void ShardBuilder::fail() const {
  throw Error(fmt::format("cannot write '{}': {}.", file_.string(),
                          errno != 0 ? std::generic_category().message(errno) : "the system gave no reason"));
}

}  // namespace lockstep
