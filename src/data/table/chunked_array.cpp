#include <algorithm>
#include <bit>
#include <iterator>

#include "lockstep/core/error.hpp"
#include "lockstep/data/column.hpp"

namespace lockstep {

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
                           std::shared_ptr<const table::Origin> origin)
    : type_(std::move(type)), origin_(std::move(origin)) {
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
  index_blocks();
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
