#include <arrow/array.h>
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "datasets/arrow/validation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column.hpp"

namespace lockstep {
namespace {

using table::FileLocation;

[[noreturn]] void fail(const FileLocation& location, const std::string& what) {
  throw DataError(fmt::format("'{}' is not a valid Arrow file: record batch {}, column '{}': {}.",
                              *location.file, location.record_batch, location.column.substr(0, 100), what));
}

const std::uint8_t* buffer_of(const arrow::ArrayData& array, std::size_t index) {
  return index < array.buffers.size() && array.buffers[index] ? array.buffers[index]->data() : nullptr;
}

/// The values of types of fixed width. Text and lists have offsets there.
const std::uint8_t* values_of(const arrow::ArrayData& array, const DataType& type) {
  if (type.is_text_or_binary()) return buffer_of(array, 2);
  if (type.kind() == TypeKind::struct_ || type.is_list()) return nullptr;
  return buffer_of(array, 1);
}

ColumnData::Raw raw_of(const arrow::ArrayData& array, const DataType& type) {
  ColumnData::Raw raw{};
  if (array.null_count != 0) raw.validity = buffer_of(array, 0);
  const bool lists = type.is_list();
  if (type.is_text_or_binary() || (lists && type.width() == 0)) raw.offsets = buffer_of(array, 1);
  raw.values = values_of(array, type);
  if (!lists) return raw;
  const auto& elements = *array.child_data.front();
  raw.values = values_of(elements, type.element());
  if (raw.values != nullptr)
    raw.values += elements.offset * static_cast<std::int64_t>(type.element().value_bytes());
  return raw;
}

}  // namespace

RowMap RowMap::slice(std::int64_t start, std::int64_t count) const {
  if (rows_ == nullptr) return {start_ + start, count};
  const auto begin = rows_->begin() + start;
  return RowMap(std::make_shared<const std::vector<std::int64_t>>(begin, begin + count));
}

RowMap RowMap::select(std::span<const std::int64_t> rows) const {
  bool range = true;
  for (std::size_t index = 1; index < rows.size() && range; ++index)
    range = rows[index] == rows[index - 1] + 1;
  if (range && (rows_ == nullptr || rows.empty())) {
    return {rows.empty() ? 0 : start_ + rows.front(), static_cast<std::int64_t>(rows.size())};
  }
  std::vector<std::int64_t> mapped;
  mapped.reserve(rows.size());
  for (const auto row : rows) mapped.push_back((*this)[row]);
  return RowMap(std::make_shared<const std::vector<std::int64_t>>(std::move(mapped)));
}

ColumnData::ColumnData(DataType type, std::vector<table::Chunk> chunks,
                       std::shared_ptr<const table::SourceFiles> source_files)
    : type_(std::move(type)), source_files_(std::move(source_files)) {
  starts_.push_back(0);
  for (auto& chunk : chunks) {
    const auto& array = *chunk.array;
    if (!array.type()->Equals(*type_.arrow())) {
      throw UsageError(fmt::format("the pieces of a column must have one type, got {} and {}.", type_.text(),
                                   array.type()->ToString()));
    }
    if (array.length() == 0) continue;
    raw_.push_back(raw_of(*array.data(), type_));
    raw_.back().zero = starts_.back() - array.offset();
    starts_.push_back(starts_.back() + array.length());
    chunks_.push_back(std::move(chunk));
  }
  const auto is_unchecked = [](const table::Chunk& chunk) { return chunk.unchecked != nullptr; };
  if (std::any_of(chunks_.begin(), chunks_.end(), is_unchecked)) {
    unchecked_ = std::make_unique<std::atomic<bool>[]>(chunks_.size());
    std::transform(chunks_.begin(), chunks_.end(), unchecked_.get(), is_unchecked);
  }
  index_blocks();
}

void ColumnData::check(std::size_t chunk) const {
  const auto& [array, location] = chunks_[chunk];
  const auto damage = arrow_file::damage_of(*array->data());
  if (!damage.empty()) fail(*location, damage);
  unchecked_[chunk].store(false, std::memory_order_relaxed);
}

const std::string& ColumnData::memory_hash(const std::function<std::string()>& find) const {
  std::call_once(hashed_, [&] { memory_hash_ = find(); });
  return memory_hash_;
}

void ColumnData::index_blocks() {
  const auto mean = size() / std::max<std::int64_t>(1, std::ssize(chunks_));
  shift_ = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(1, mean))) - 1;
  const auto blocks = static_cast<std::size_t>((size() >> shift_) + 1);
  first_.reserve(blocks);
  std::size_t chunk = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto row = static_cast<std::int64_t>(block) << shift_;
    while (chunk < chunks_.size() && starts_[chunk + 1] <= row) ++chunk;
    first_.push_back(chunk);
  }
}

}  // namespace lockstep
