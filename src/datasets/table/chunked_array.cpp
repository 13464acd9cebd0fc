#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "lockstep/core/error.hpp"
#include "lockstep/datasets/column.hpp"

namespace lockstep {
namespace {

[[noreturn]] void fail(const FileLocation& place, const std::string& what) {
  throw DataError(fmt::format("'{}' is no valid Arrow file: record batch {}, column '{}': {}.", *place.file,
                              place.record_batch, place.column.substr(0, 100), what));
}

template <typename Offset>
void check_offsets(const ArrayData& array, std::int64_t reach, const FileLocation& place) {
  const auto* offsets = reinterpret_cast<const Offset*>(array.offsets.data);
  if (offsets[0] < 0) fail(place, fmt::format("its first offset is {}", offsets[0]));
  for (std::int64_t row = 0; row < array.length; ++row) {
    if (offsets[row + 1] >= offsets[row]) continue;
    fail(place,
         fmt::format("row {}: its offsets go from {} back to {}", row, offsets[row], offsets[row + 1]));
  }
  if (offsets[array.length] > reach) {
    fail(place, fmt::format("its offsets lead to {}, but there are only {} bytes or elements",
                            offsets[array.length], reach));
  }
}

/// Of the array and all inside it.
void check_all_offsets(const ArrayData& array, const FileLocation& place) {
  const auto kind = array.type.kind();
  const bool lists = array.type.is_list();
  const auto reach = lists ? array.children.front()->length : static_cast<std::int64_t>(array.values.bytes);
  if (array.length > 0 && array.offsets.data != nullptr) {
    const bool large =
        kind == TypeKind::large_utf8 || kind == TypeKind::large_binary || kind == TypeKind::large_list;
    large ? check_offsets<std::int64_t>(array, reach, place)
          : check_offsets<std::int32_t>(array, reach, place);
  }
  for (const auto& child : array.children) check_all_offsets(*child, place);
}

}  // namespace

RowMap RowMap::slice(std::int64_t start, std::int64_t count) const {
  if (rows_ == nullptr) return {start_ + start, count};
  const auto begin = rows_->begin() + start;
  return RowMap(std::make_shared<const std::vector<std::int64_t>>(begin, begin + count));
}

RowMap RowMap::select(std::span<const std::int64_t> rows) const {
  bool range = true;
  for (std::size_t place = 1; place < rows.size() && range; ++place)
    range = rows[place] == rows[place - 1] + 1;
  if (range && (rows_ == nullptr || rows.empty())) {
    return {rows.empty() ? 0 : start_ + rows.front(), static_cast<std::int64_t>(rows.size())};
  }
  std::vector<std::int64_t> mapped;
  mapped.reserve(rows.size());
  for (const auto row : rows) mapped.push_back((*this)[row]);
  return RowMap(std::make_shared<const std::vector<std::int64_t>>(std::move(mapped)));
}

ChunkedArray::ChunkedArray(DataType type, std::vector<ArrayPointer> chunks,
                           std::shared_ptr<const table::SourceFiles> source_files)
    : type_(std::move(type)), source_files_(std::move(source_files)) {
  starts_.push_back(0);
  for (auto& chunk : chunks) {
    if (!(chunk->type == type_)) {
      throw UsageError("the pieces of a column must have one type, but came " + type_.text() + " and " +
                       chunk->type.text() + ".");
    }
    if (chunk->length == 0) continue;
    starts_.push_back(starts_.back() + chunk->length);
    const auto& values = type_.is_list() ? chunk->children.front()->values : chunk->values;
    raw_.push_back({chunk->validity.data, chunk->offsets.data, values.data});
    chunks_.push_back(std::move(chunk));
  }
  const auto is_unchecked = [](const ArrayPointer& chunk) { return chunk->unchecked != nullptr; };
  if (std::any_of(chunks_.begin(), chunks_.end(), is_unchecked)) {
    unchecked_ = std::make_unique<std::atomic<bool>[]>(chunks_.size());
    std::transform(chunks_.begin(), chunks_.end(), unchecked_.get(), is_unchecked);
  }
  index_blocks();
}

void ChunkedArray::check(std::size_t chunk) const {
  check_all_offsets(*chunks_[chunk], *chunks_[chunk]->unchecked);
  unchecked_[chunk].store(false, std::memory_order_relaxed);
}

const std::string& ChunkedArray::memory_hash(const std::function<std::string()>& find) const {
  std::call_once(hashed_, [&] { memory_hash_ = find(); });
  return memory_hash_;
}

void ChunkedArray::index_blocks() {
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
