#include "take.hpp"

#include <cstring>
#include <limits>

#include "lockstep/core/error.hpp"

namespace lockstep::table {
namespace {

using Bits = std::vector<std::uint8_t>;

std::int64_t total(std::span<const Range> ranges) {
  std::int64_t rows = 0;
  for (const auto& range : ranges) rows += range.count;
  return rows;
}

bool bit(const std::uint8_t* bits, std::int64_t place) { return (bits[place >> 3] >> (place & 7) & 1) != 0; }

void set_bit(Bits& bits, std::int64_t place) {
  bits[static_cast<std::size_t>(place >> 3)] |= static_cast<std::uint8_t>(1U << (place & 7));
}

/// Copies bits; where both sides begin at a byte, bytes.
void copy_bits(Bits& out, std::int64_t place, const std::uint8_t* from, std::int64_t begin,
               std::int64_t count) {
  std::int64_t done = 0;
  if ((place & 7) == 0 && (begin & 7) == 0) {
    done = count & ~std::int64_t{7};
    std::memcpy(out.data() + (place >> 3), from + (begin >> 3), static_cast<std::size_t>(done >> 3));
  }
  for (; done < count; ++done) {
    if (bit(from, begin + done)) set_bit(out, place + done);
  }
}

void copy_validity(ArrayData& out, std::span<const Range> ranges) {
  bool any = false;
  for (const auto& range : ranges) any = any || range.array->validity.data != nullptr;
  if (!any) return;
  Bits bits(static_cast<std::size_t>((out.length + 7) / 8));
  std::int64_t place = 0;
  for (const auto& range : ranges) {
    if (range.array->validity.data != nullptr) {
      copy_bits(bits, place, range.array->validity.data, range.begin, range.count);
    } else {
      for (std::int64_t row = 0; row < range.count; ++row) set_bit(bits, place + row);
    }
    place += range.count;
  }
  for (std::int64_t row = 0; row < out.length; ++row) out.null_count += bit(bits.data(), row) ? 0 : 1;
  if (out.null_count > 0) out.validity = Buffer::of(std::move(bits));
}

void copy_booleans(ArrayData& out, std::span<const Range> ranges) {
  Bits bits(static_cast<std::size_t>((out.length + 7) / 8));
  std::int64_t place = 0;
  for (const auto& range : ranges) {
    copy_bits(bits, place, range.array->values.data, range.begin, range.count);
    place += range.count;
  }
  out.values = Buffer::of(std::move(bits));
}

/// `width` bytes for each row.
void copy_fixed(ArrayData& out, std::span<const Range> ranges, std::size_t width) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(out.length) * width);
  auto* next = bytes.data();
  for (const auto& range : ranges) {
    const auto count = static_cast<std::size_t>(range.count) * width;
    if (count > 0)
      std::memcpy(next, range.array->values.data + static_cast<std::size_t>(range.begin) * width, count);
    next += count;
  }
  out.values = Buffer::of(std::move(bytes));
}

/// Offsets that begin at 0, and for each range where its bytes or elements lie.
template <typename Offset>
std::vector<Range> copy_offsets(ArrayData& out, std::span<const Range> ranges) {
  std::vector<Offset> offsets{0};
  offsets.reserve(static_cast<std::size_t>(out.length) + 1);
  std::vector<Range> inner;
  inner.reserve(ranges.size());
  std::int64_t end = 0;
  for (const auto& range : ranges) {
    if (range.count == 0) continue;
    const auto* from = reinterpret_cast<const Offset*>(range.array->offsets.data) + range.begin;
    for (std::int64_t row = 1; row <= range.count; ++row) {
      offsets.push_back(static_cast<Offset>(end + (from[row] - from[0])));
    }
    const auto count = static_cast<std::int64_t>(from[range.count] - from[0]);
    end += count;
    if (end > std::numeric_limits<Offset>::max()) {
      throw UsageError("the rows' " + out.type.text() +
                       " values take more than 2^31 - 1 bytes or elements "
                       "together. Write fewer rows in a batch, or cast the column to its large type.");
    }
    inner.push_back({range.array, from[0], count});
  }
  out.offsets = Buffer::of(std::move(offsets));
  return inner;
}

bool is_large(TypeKind kind) {
  return kind == TypeKind::large_utf8 || kind == TypeKind::large_binary || kind == TypeKind::large_list;
}

std::vector<Range> copied_offsets(ArrayData& out, std::span<const Range> ranges) {
  return is_large(out.type.kind()) ? copy_offsets<std::int64_t>(out, ranges)
                                   : copy_offsets<std::int32_t>(out, ranges);
}

void copy_text(ArrayData& out, std::span<const Range> ranges) {
  const auto inner = copied_offsets(out, ranges);
  std::vector<std::uint8_t> bytes;
  bytes.reserve(static_cast<std::size_t>(total(inner)));
  for (const auto& range : inner) {
    const auto* from = range.array->values.data + range.begin;
    if (range.count > 0) bytes.insert(bytes.end(), from, from + range.count);
  }
  out.values = Buffer::of(std::move(bytes));
}

void copy_child(ArrayData& out, std::vector<Range> ranges, std::size_t child) {
  for (auto& range : ranges) range.array = range.array->children[child].get();
  out.children.push_back(copy_ranges(out.type.fields()[child].type, ranges));
}

void copy_list(ArrayData& out, std::span<const Range> ranges) {
  if (out.type.kind() != TypeKind::fixed_size_list) return copy_child(out, copied_offsets(out, ranges), 0);
  std::vector<Range> inner(ranges.begin(), ranges.end());
  for (auto& range : inner) {
    range.begin *= out.type.width();
    range.count *= out.type.width();
  }
  copy_child(out, std::move(inner), 0);
}

void copy_values(ArrayData& out, std::span<const Range> ranges) {
  const auto& type = out.type;
  if (type.kind() == TypeKind::boolean) return copy_booleans(out, ranges);
  if (type.value_bytes() > 0) return copy_fixed(out, ranges, type.value_bytes());
  if (type.is_text_or_binary()) return copy_text(out, ranges);
  if (type.is_list()) return copy_list(out, ranges);
  for (std::size_t child = 0; child < type.fields().size(); ++child) {
    copy_child(out, {ranges.begin(), ranges.end()}, child);
  }
}

}  // namespace

std::vector<Range> ranges_of(const ChunkedArray& data, const RowMap& rows, std::int64_t start,
                             std::int64_t count) {
  std::vector<Range> ranges;
  for (std::int64_t row = start; row < start + count;) {
    const auto place = data.locate(rows[row]);
    const auto* array = data.chunks()[place.chunk].get();
    const auto most = std::min(array->length - place.row, start + count - row);
    std::int64_t joined = rows.is_range() ? most : 1;
    while (joined < most && rows[row + joined] == rows[row] + joined) ++joined;
    ranges.push_back({array, place.row, joined});
    row += joined;
  }
  return ranges;
}

ArrayPointer copy_ranges(const DataType& type, std::span<const Range> ranges) {
  ArrayData out;
  out.type = type;
  out.length = total(ranges);
  if (type.kind() == TypeKind::null) {
    out.null_count = out.length;
  } else {
    copy_validity(out, ranges);
    copy_values(out, ranges);
  }
  return std::make_shared<const ArrayData>(std::move(out));
}

}  // namespace lockstep::table
