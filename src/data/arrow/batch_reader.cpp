#include "batch_reader.hpp"

#include <cstddef>
#include <cstring>

#include "data/table/take.hpp"
#include "lockstep/data/column_builder.hpp"

namespace lockstep::arrow_file {
namespace {

/// Above this a length can only be a lie; products with it stay far from overflow.
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;

bool has_large_offsets(TypeKind kind) {
  return kind == TypeKind::large_utf8 || kind == TypeKind::large_binary || kind == TypeKind::large_list;
}

/// What an offset of the type may reach at most in `array`.
std::int64_t reach(const ArrayData& array) {
  return array.type.is_list() ? array.children.front()->length
                              : static_cast<std::int64_t>(array.values.bytes);
}

template <typename Offset>
void check_offsets(const ArrayData& array, bool trusted, const Place& place) {
  if (array.length == 0) return;
  const auto* offsets = reinterpret_cast<const Offset*>(array.offsets.data);
  if (offsets[0] < 0) place.fail("its first offset is " + std::to_string(offsets[0]));
  for (std::int64_t row = 0; !trusted && row < array.length; ++row) {
    if (offsets[row + 1] >= offsets[row]) continue;
    place.fail("row " + std::to_string(row) + ": its offsets go from " + std::to_string(offsets[row]) +
               " back to " + std::to_string(offsets[row + 1]));
  }
  if (offsets[array.length] > reach(array)) {
    place.fail("its offsets lead to " + std::to_string(offsets[array.length]) + ", but there are only " +
               std::to_string(reach(array)) + " bytes or elements");
  }
}

class Reader {
 public:
  Reader(const BatchMessage& message, const Dictionaries& dictionaries, bool trusted, const Place& place)
      : body_(message.body),
        nodes_(message.table.vector(1, 16)),
        buffers_(message.table.vector(2, 16)),
        dictionaries_(dictionaries),
        trusted_(trusted) {
    if (message.table.has(3)) {
      place.fail(
          "its buffers are compressed, which is not supported. Write it again without compression, in "
          "Python: pyarrow.ipc.new_file(sink, schema, options=pyarrow.ipc.IpcWriteOptions(compression=None))"
          ", or pyarrow.feather.write_feather(table, path, compression='uncompressed')");
    }
  }

  ArrayPointer column(const FileField& field, const Place& place) {
    if (!field.dictionary) return array(field, place);
    FileField numbers;
    numbers.type = field.dictionary->index;
    return decoded(field, *array(numbers, place), place);
  }

 private:
  ArrayPointer array(const FileField& field, const Place& place) {
    ArrayData array;
    array.type = field.type;
    read_node(array, place);
    if (array.type.kind() == TypeKind::null) {
      array.null_count = array.length;
      return std::make_shared<const ArrayData>(std::move(array));
    }
    read_validity(array, place);
    read_buffers(array, place);
    for (const auto& child : field.children) {
      array.children.push_back(column(child, place.within("field '" + child.name.substr(0, 100) + "'")));
    }
    check_children(array, place);
    if (has_offsets(array.type)) {
      if (has_large_offsets(array.type.kind())) {
        check_offsets<std::int64_t>(array, trusted_, place);
      } else {
        check_offsets<std::int32_t>(array, trusted_, place);
      }
    }
    return std::make_shared<const ArrayData>(std::move(array));
  }

  static bool has_offsets(const DataType& type) {
    return type.is_text_or_binary() || (type.is_list() && type.width() == 0);
  }

  void read_node(ArrayData& array, const Place& place) {
    if (node_ == nodes_.size()) place.fail("the batch describes fewer columns than the schema");
    array.length = nodes_.number<std::int64_t>(node_);
    array.null_count = nodes_.number<std::int64_t>(node_, 8);
    ++node_;
    if (array.length < 0 || array.length > kMostRows)
      place.fail("it claims " + std::to_string(array.length) + " rows");
    if (array.null_count < 0 || array.null_count > array.length) {
      place.fail("it claims " + std::to_string(array.null_count) + " nulls in " +
                 std::to_string(array.length) + " rows");
    }
  }

  void read_validity(ArrayData& array, const Place& place) {
    const auto bits = next_buffer(place);
    // Writers may leave a bitmap that marks nothing.
    if (array.null_count == 0) return;
    require(bits, (array.length + 7) / 8, "bitmap of nulls", place);
    array.validity = bits;
  }

  void read_buffers(ArrayData& array, const Place& place) {
    const auto& type = array.type;
    if (has_offsets(type)) {
      const std::int64_t width = has_large_offsets(type.kind()) ? 8 : 4;
      array.offsets = aligned(next_buffer(place), static_cast<std::size_t>(width));
      if (array.length > 0) require(array.offsets, (array.length + 1) * width, "offsets", place);
    }
    if (type.is_list() || type.kind() == TypeKind::structure) return;
    array.values = next_buffer(place);
    const auto width = type.value_bytes();
    if (width > 0) {
      if (type.kind() != TypeKind::fixed_size_binary) array.values = aligned(array.values, width);
      require(array.values, checked_product(array.length, static_cast<std::int64_t>(width), place), "values",
              place);
    }
    if (type.kind() == TypeKind::boolean) require(array.values, (array.length + 7) / 8, "values", place);
  }

  static std::int64_t checked_product(std::int64_t rows, std::int64_t width, const Place& place) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(rows, width, &product)) place.fail("it claims more than 2^63 - 1 bytes");
    return product;
  }

  static void check_children(const ArrayData& array, const Place& place) {
    std::int64_t needed = 0;
    if (array.type.kind() == TypeKind::structure) needed = array.length;
    if (array.type.kind() == TypeKind::fixed_size_list)
      needed = checked_product(array.length, array.type.width(), place);
    for (const auto& child : array.children) {
      if (child->length >= needed) continue;
      place.fail("its " + std::to_string(array.length) + " rows need " + std::to_string(needed) +
                 " elements, but there are only " + std::to_string(child->length));
    }
  }

  Buffer next_buffer(const Place& place) {
    if (buffer_ == buffers_.size()) place.fail("the batch describes fewer buffers than its columns need");
    const auto offset = buffers_.number<std::int64_t>(buffer_);
    const auto count = buffers_.number<std::int64_t>(buffer_, 8);
    ++buffer_;
    const auto size = static_cast<std::int64_t>(body_.bytes);
    if (offset < 0 || count < 0 || offset > size || count > size - offset) {
      place.fail("its buffer of " + std::to_string(count) + " bytes from byte " + std::to_string(offset) +
                 " on leaves the batch's " + std::to_string(size) + " bytes");
    }
    return {body_.data + offset, static_cast<std::size_t>(count), body_.owner};
  }

  static void require(const Buffer& buffer, std::int64_t bytes, const char* what, const Place& place) {
    if (static_cast<std::int64_t>(buffer.bytes) >= bytes) return;
    place.fail(std::string("its ") + what + " take " + std::to_string(bytes) + " bytes, but the buffer has " +
               std::to_string(buffer.bytes));
  }

  /// Old files, and those of careless writers, have numbers on any address.
  static Buffer aligned(const Buffer& buffer, std::size_t width) {
    if (reinterpret_cast<std::uintptr_t>(buffer.data) % width == 0) return buffer;
    std::vector<std::uint64_t> copy((buffer.bytes + 7) / 8);
    if (buffer.bytes > 0) std::memcpy(copy.data(), buffer.data, buffer.bytes);
    auto fresh = Buffer::of(std::move(copy));
    fresh.bytes = buffer.bytes;
    return fresh;
  }

  ArrayPointer decoded(const FileField& field, const ArrayData& numbers, const Place& place) {
    const auto found = dictionaries_.find(field.dictionary->id);
    if (found == dictionaries_.end()) {
      place.fail("its dictionary " + std::to_string(field.dictionary->id) +
                 " does not come before the batch");
    }
    const auto& values = found->second;
    ColumnBuilder nothing(field.type);
    nothing.append_null();
    const auto null = nothing.finish().flatten();
    const Column column(std::make_shared<const ArrayData>(numbers));
    std::vector<table::Range> ranges;
    for (std::int64_t row = 0; row < numbers.length; ++row) {
      const auto number = column.value(row);
      if (number.is_null()) {
        ranges.push_back({null.get(), 0, 1});
        continue;
      }
      const auto place_in = std::get_if<std::int64_t>(&number.variant());
      if (place_in == nullptr || *place_in < 0 || *place_in >= values->length) {
        place.fail("row " + std::to_string(row) + ": it points to entry " + number.to_json() +
                   " of a dictionary of " + std::to_string(values->length));
      }
      ranges.push_back({values.get(), *place_in, 1});
    }
    return table::copy_ranges(field.type, ranges);
  }

  Buffer body_;
  FlatVector nodes_;
  FlatVector buffers_;
  const Dictionaries& dictionaries_;
  bool trusted_;
  std::size_t node_ = 0;
  std::size_t buffer_ = 0;
};

}  // namespace

std::vector<ArrayPointer> read_batch(const BatchMessage& message, const std::vector<FileField>& fields,
                                     const Dictionaries& dictionaries, bool trusted, const Place& place) {
  const auto rows = message.table.number<std::int64_t>(0, 0);
  Reader reader(message, dictionaries, trusted, place);
  std::vector<ArrayPointer> columns;
  for (const auto& field : fields) {
    const auto at = place.within("column '" + field.name.substr(0, 100) + "'");
    columns.push_back(reader.column(field, at));
    if (columns.back()->length != rows) {
      at.fail("it has " + std::to_string(columns.back()->length) + " rows, but the batch has " +
              std::to_string(rows));
    }
  }
  return columns;
}

const FileField* find_dictionary(const std::vector<FileField>& fields, std::int64_t id) {
  for (const auto& field : fields) {
    if (field.dictionary && field.dictionary->id == id) return &field;
    if (const auto* inner = find_dictionary(field.children, id)) return inner;
  }
  return nullptr;
}

}  // namespace lockstep::arrow_file
