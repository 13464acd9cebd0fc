#include "bridge.hpp"

#include <arrow/array.h>
#include <arrow/array/data.h>
#include <arrow/buffer.h>
#include <arrow/compute/api_vector.h>
#include <arrow/compute/cast.h>
#include <arrow/extension_type.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/bitmap_ops.h>
#include <arrow/util/decimal.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "cast.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::arrow_file {
namespace {

/// Above this a length can only be a lie; products with it stay far from overflow.
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;

/// Types without parameters, which correspond one to one.
struct Simple {
  arrow::Type::type theirs;
  TypeKind ours;
  const std::shared_ptr<arrow::DataType>& (*make)();
};

constexpr std::array kSimple = {
    Simple{arrow::Type::NA, TypeKind::null, arrow::null},
    Simple{arrow::Type::BOOL, TypeKind::boolean, arrow::boolean},
    Simple{arrow::Type::INT8, TypeKind::int8, arrow::int8},
    Simple{arrow::Type::INT16, TypeKind::int16, arrow::int16},
    Simple{arrow::Type::INT32, TypeKind::int32, arrow::int32},
    Simple{arrow::Type::INT64, TypeKind::int64, arrow::int64},
    Simple{arrow::Type::UINT8, TypeKind::uint8, arrow::uint8},
    Simple{arrow::Type::UINT16, TypeKind::uint16, arrow::uint16},
    Simple{arrow::Type::UINT32, TypeKind::uint32, arrow::uint32},
    Simple{arrow::Type::UINT64, TypeKind::uint64, arrow::uint64},
    Simple{arrow::Type::HALF_FLOAT, TypeKind::float16, arrow::float16},
    Simple{arrow::Type::FLOAT, TypeKind::float32, arrow::float32},
    Simple{arrow::Type::DOUBLE, TypeKind::float64, arrow::float64},
    Simple{arrow::Type::STRING, TypeKind::utf8, arrow::utf8},
    Simple{arrow::Type::LARGE_STRING, TypeKind::large_utf8, arrow::large_utf8},
    Simple{arrow::Type::BINARY, TypeKind::binary, arrow::binary},
    Simple{arrow::Type::LARGE_BINARY, TypeKind::large_binary, arrow::large_binary},
    Simple{arrow::Type::DATE32, TypeKind::date32, arrow::date32},
    Simple{arrow::Type::DATE64, TypeKind::date64, arrow::date64},
};

constexpr std::array<const char*, 4> kUnits = {"s", "ms", "us", "ns"};

std::string unit_name(arrow::TimeUnit::type unit) { return kUnits[static_cast<std::size_t>(unit)]; }

arrow::TimeUnit::type unit_of(const DataType& type) {
  const auto found = std::find(kUnits.begin(), kUnits.end(), type.unit());
  return static_cast<arrow::TimeUnit::type>(found - kUnits.begin());
}

std::vector<Field> fields_of(const arrow::FieldVector& given, const Location& place) {
  std::vector<Field> fields;
  for (const auto& field : given) {
    const auto at = place.within(fmt::format("column '{}'", field->name().substr(0, 100)));
    fields.push_back({field->name(), type_of(*field->type(), at), field->nullable()});
  }
  return fields;
}

std::int32_t checked_width(std::int32_t width, const Location& place) {
  if (width < 1) place.fail(fmt::format("it has a fixed size of {}", width));
  return width;
}

template <typename Type>
const Type& as(const arrow::DataType& type) {
  return static_cast<const Type&>(type);
}

template <typename T>
T value(arrow::Result<T> result, const Location& place) {
  if (!result.ok()) place.fail(result.status().message());
  return *std::move(result);
}

void check(const arrow::Status& status, const Location& place) {
  if (!status.ok()) place.fail(status.message());
}

/// Values whose layout is not ours, in a layout that is.
std::shared_ptr<arrow::ArrayData> plain(const std::shared_ptr<arrow::ArrayData>& given,
                                        const Location& place) {
  const auto cast = [&](const std::shared_ptr<arrow::DataType>& type) {
    const auto array = arrow::MakeArray(given);
    check(array->ValidateFull(), place);
    return value(arrow::compute::Cast(array, type), place).array();
  };
  const auto& type = *given->type;
  switch (type.id()) {
    case arrow::Type::EXTENSION: {
      auto storage = given->Copy();
      storage->type = as<arrow::ExtensionType>(type).storage_type();
      return plain(storage, place);
    }
    case arrow::Type::DICTIONARY: {
      const arrow::DictionaryArray array(given);
      check(array.ValidateFull(), place);
      return plain(value(arrow::compute::Take(array.dictionary(), array.indices()), place).array(), place);
    }
    case arrow::Type::STRING_VIEW:
      return cast(arrow::utf8());
    case arrow::Type::BINARY_VIEW:
      return cast(arrow::binary());
    default:
      return given;
  }
}

/// An array's buffers, each as long as its rows demand.
class Buffers {
 public:
  Buffers(const arrow::ArrayData& array, const Location& place) : array_(array), place_(place) {}

  /// `width` bytes a row from the array's first row on, and `more` of these behind the last.
  Buffer fixed(std::size_t place, std::int64_t width, const char* what, std::int64_t more = 0) const {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(array_.offset + array_.length + more, width, &bytes))
      place_.fail("it claims more than 2^63 - 1 bytes");
    auto buffer = whole(place);
    if (array_.length > 0) require(buffer, bytes, what);
    return shifted(std::move(buffer), array_.offset * width);
  }

  Buffer bits(std::size_t place, const char* what) const {
    auto buffer = whole(place);
    require(buffer, (array_.offset + array_.length + 7) / 8, what);
    if (array_.offset % 8 == 0) return shifted(std::move(buffer), array_.offset / 8);
    const auto copy =
        arrow::internal::CopyBitmap(arrow::default_memory_pool(), buffer.data, array_.offset, array_.length);
    const auto bitmap = value(copy, place_);
    return {bitmap->data(), static_cast<std::size_t>(bitmap->size()), bitmap};
  }

  Buffer whole(std::size_t place) const {
    if (place >= array_.buffers.size() || array_.buffers[place] == nullptr) return {};
    const auto& buffer = array_.buffers[place];
    return {buffer->data(), static_cast<std::size_t>(buffer->size()), buffer};
  }

 private:
  void require(const Buffer& buffer, std::int64_t bytes, const char* what) const {
    if (static_cast<std::int64_t>(buffer.bytes) >= bytes) return;
    place_.fail(fmt::format("its {} take {} bytes, but the buffer has {}", what, bytes, buffer.bytes));
  }

  static Buffer shifted(Buffer buffer, std::int64_t bytes) {
    if (buffer.data == nullptr) return buffer;
    buffer.data += bytes;
    buffer.bytes -= static_cast<std::size_t>(bytes);
    return buffer;
  }

  const arrow::ArrayData& array_;
  const Location& place_;
};

bool has_large_offsets(TypeKind kind) {
  return kind == TypeKind::large_utf8 || kind == TypeKind::large_binary || kind == TypeKind::large_list;
}

bool has_offsets(const DataType& type) {
  return type.is_text_or_binary() || (type.is_list() && type.width() == 0);
}

void read_length(ArrayData& array, const arrow::ArrayData& given, const Location& place) {
  array.length = given.length;
  if (given.length < 0 || given.length > kMostRows)
    place.fail(fmt::format("it claims {} rows", given.length));
  const std::int64_t nulls = given.null_count;
  if (nulls < arrow::kUnknownNullCount || nulls > given.length)
    place.fail(fmt::format("it claims {} nulls in {} rows", nulls, given.length));
}

void read_validity(ArrayData& array, const arrow::ArrayData& given, const Buffers& buffers) {
  // Writers may leave a bitmap that marks nothing.
  if (given.null_count == 0 || given.buffers[0] == nullptr) return;
  const auto bits = buffers.bits(0, "bitmap of nulls");
  array.null_count = given.GetNullCount();
  if (array.null_count > 0) array.validity = bits;
}

/// The children's rows that belong to the array's own.
void read_children(ArrayData& array, const arrow::ArrayData& given, const Location& place) {
  const auto& type = array.type;
  const std::int64_t each = type.kind() == TypeKind::struct_           ? 1
                            : type.kind() == TypeKind::fixed_size_list ? type.width()
                                                                       : 0;
  std::int64_t needed = 0;
  if (__builtin_mul_overflow(given.offset + given.length, each, &needed))
    place.fail("it claims more than 2^63 - 1 elements");
  for (std::size_t child = 0; child < given.child_data.size(); ++child) {
    const auto& data = given.child_data[child];
    if (data->length < needed) {
      place.fail(fmt::format("its {} rows need {} elements, but there are only {}", given.length, needed,
                             data->length));
    }
    const auto at = place.within(fmt::format("field '{}'", type.fields()[child].name.substr(0, 100)));
    const bool part = each > 0 && given.offset > 0;
    array.children.push_back(
        from_arrow(part ? data->Slice(given.offset * each, given.length * each) : data, at));
  }
}

/// A buffer of ours, for Arrow.
class KeptBuffer final : public arrow::Buffer {
 public:
  explicit KeptBuffer(const lockstep::Buffer& bytes)
      : arrow::Buffer(bytes.data, static_cast<std::int64_t>(bytes.bytes)), owner_(bytes.owner) {}

 private:
  std::shared_ptr<const void> owner_;
};

}  // namespace

void Location::fail(const std::string& what) const {
  throw DataError(fmt::format("'{}' is no valid Arrow file: {}: {}.", file_, where_, what));
}

DataType type_of(const arrow::DataType& type, const Location& place) {
  for (const auto& simple : kSimple) {
    if (simple.theirs == type.id()) return DataType(simple.ours);
  }
  const auto child = [&] { return type_of(*type.field(0)->type(), place); };
  switch (type.id()) {
    case arrow::Type::STRING_VIEW:
      return DataType(TypeKind::utf8);
    case arrow::Type::BINARY_VIEW:
      return DataType(TypeKind::binary);
    case arrow::Type::EXTENSION:
      return type_of(*as<arrow::ExtensionType>(type).storage_type(), place);
    case arrow::Type::DICTIONARY:
      return type_of(*as<arrow::DictionaryType>(type).value_type(), place);
    // A map is a list of structures of a key and a value.
    case arrow::Type::MAP:
    case arrow::Type::LIST:
      return DataType::list(child());
    case arrow::Type::LARGE_LIST:
      return DataType::list(child(), true);
    case arrow::Type::FIXED_SIZE_LIST:
      return DataType::fixed_size_list(child(),
                                       checked_width(as<arrow::FixedSizeListType>(type).list_size(), place));
    case arrow::Type::STRUCT:
      return DataType::struct_(fields_of(type.fields(), place));
    case arrow::Type::FIXED_SIZE_BINARY:
      return DataType::fixed_size_binary(
          checked_width(as<arrow::FixedSizeBinaryType>(type).byte_width(), place));
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256: {
      const auto& decimal = as<arrow::DecimalType>(type);
      return DataType::decimal(decimal.byte_width(), decimal.precision(), decimal.scale());
    }
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
      return DataType::temporal(type.id() == arrow::Type::TIME32 ? TypeKind::time32 : TypeKind::time64,
                                unit_name(as<arrow::TimeType>(type).unit()));
    case arrow::Type::TIMESTAMP: {
      const auto& stamp = as<arrow::TimestampType>(type);
      return DataType::temporal(TypeKind::timestamp, unit_name(stamp.unit()), stamp.timezone());
    }
    case arrow::Type::DURATION:
      return DataType::temporal(TypeKind::duration, unit_name(as<arrow::DurationType>(type).unit()));
    default:
      place.fail(
          fmt::format("its type ({}) is not supported. Convert the column before it is written, in Python: "
                      "table.set_column(...) with pyarrow.compute.cast",
                      type.ToString()));
  }
}

FileSchema schema_of(const arrow::Schema& schema, const Location& place) {
  FileSchema result{fields_of(schema.fields(), place), {}};
  if (const auto& metadata = schema.metadata()) {
    for (std::int64_t entry = 0; entry < metadata->size(); ++entry)
      result.metadata.emplace(metadata->key(entry), metadata->value(entry));
  }
  return result;
}

std::shared_ptr<ArrayData> from_arrow(const std::shared_ptr<arrow::ArrayData>& array, const Location& place) {
  const auto given = plain(array, place);
  auto made = std::make_shared<ArrayData>();
  made->type = type_of(*given->type, place);
  const auto& type = made->type;
  read_length(*made, *given, place);
  if (type.kind() == TypeKind::null) {
    made->null_count = made->length;
    return made;
  }
  const Buffers buffers(*given, place);
  read_validity(*made, *given, buffers);
  if (has_offsets(type))
    made->offsets = buffers.fixed(1, has_large_offsets(type.kind()) ? 8 : 4, "offsets", 1);
  if (type.is_text_or_binary()) made->values = buffers.whole(2);
  if (type.kind() == TypeKind::boolean) made->values = buffers.bits(1, "values");
  if (type.value_bytes() > 0)
    made->values = buffers.fixed(1, static_cast<std::int64_t>(type.value_bytes()), "values");
  read_children(*made, *given, place);
  return made;
}

std::string decimal_text(const ArrayData& array, std::int64_t row) {
  const auto* bytes = array.values.data + row * static_cast<std::int64_t>(array.type.value_bytes());
  const auto scale = array.type.scale();
  return array.type.kind() == TypeKind::decimal128 ? arrow::Decimal128(bytes).ToString(scale)
                                                   : arrow::Decimal256(bytes).ToString(scale);
}

std::shared_ptr<arrow::DataType> to_arrow(const DataType& type) {
  for (const auto& simple : kSimple) {
    if (simple.ours == type.kind()) return simple.make();
  }
  arrow::FieldVector fields;
  for (const auto& field : type.fields())
    fields.push_back(arrow::field(field.name, to_arrow(field.type), field.nullable));
  switch (type.kind()) {
    case TypeKind::list:
      return arrow::list(fields.front());
    case TypeKind::large_list:
      return arrow::large_list(fields.front());
    case TypeKind::fixed_size_list:
      return arrow::fixed_size_list(fields.front(), type.width());
    case TypeKind::fixed_size_binary:
      return arrow::fixed_size_binary(type.width());
    case TypeKind::decimal128:
      return arrow::decimal128(type.precision(), type.scale());
    case TypeKind::decimal256:
      return arrow::decimal256(type.precision(), type.scale());
    case TypeKind::time32:
      return arrow::time32(unit_of(type));
    case TypeKind::time64:
      return arrow::time64(unit_of(type));
    case TypeKind::timestamp:
      return arrow::timestamp(unit_of(type), type.zone());
    case TypeKind::duration:
      return arrow::duration(unit_of(type));
    default:
      return arrow::struct_(fields);
  }
}

std::shared_ptr<arrow::Schema> to_arrow(const std::vector<Field>& fields,
                                        const std::map<std::string, std::string>& metadata) {
  arrow::FieldVector made;
  for (const auto& field : fields)
    made.push_back(arrow::field(field.name, to_arrow(field.type), field.nullable));
  auto texts = std::make_shared<arrow::KeyValueMetadata>();
  for (const auto& [key, text] : metadata) texts->Append(key, text);
  return arrow::schema(std::move(made), texts->size() > 0 ? std::move(texts) : nullptr);
}

std::shared_ptr<arrow::Buffer> to_arrow(const Buffer& bytes) {
  // No rows still have the offset 0, and buffers that are there.
  alignas(8) static constexpr std::array<std::uint8_t, 8> kZeros{};
  if (bytes.data == nullptr)
    return std::make_shared<arrow::Buffer>(kZeros.data(), std::int64_t{kZeros.size()});
  return std::make_shared<KeptBuffer>(bytes);
}

std::shared_ptr<arrow::ArrayData> to_arrow(const ArrayPointer& array) {
  const auto& type = array->type;
  std::vector<std::shared_ptr<arrow::Buffer>> buffers(1);
  if (array->validity.data != nullptr) buffers.front() = to_arrow(array->validity);
  if (has_offsets(type)) buffers.push_back(to_arrow(array->offsets));
  if (type.fields().empty() && type.kind() != TypeKind::null && type.kind() != TypeKind::struct_)
    buffers.push_back(to_arrow(array->values));
  std::vector<std::shared_ptr<arrow::ArrayData>> children;
  for (const auto& child : array->children) children.push_back(to_arrow(child));
  return arrow::ArrayData::Make(to_arrow(type), array->length, std::move(buffers), std::move(children),
                                array->null_count);
}

std::shared_ptr<arrow::RecordBatch> to_arrow(const std::shared_ptr<arrow::Schema>& schema,
                                             std::span<const ArrayPointer> columns, std::int64_t rows) {
  std::vector<std::shared_ptr<arrow::ArrayData>> arrays;
  for (const auto& column : columns) arrays.push_back(to_arrow(column));
  return arrow::RecordBatch::Make(schema, rows, std::move(arrays));
}

}  // namespace lockstep::arrow_file
