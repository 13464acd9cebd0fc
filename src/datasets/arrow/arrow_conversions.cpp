#include "datasets/arrow/arrow_conversions.hpp"

#include <arrow/array.h>
#include <arrow/array/data.h>
#include <arrow/builder.h>
#include <arrow/compute/api_vector.h>
#include <arrow/compute/cast.h>
#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "core/utf8_check.hpp"
#include "datasets/arrow/known_types.hpp"
#include "datasets/arrow/validation.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::arrow_file {
namespace {

template <typename Type>
const Type& as(const arrow::DataType& type) {
  return static_cast<const Type&>(type);
}

template <typename T>
T value(arrow::Result<T> result, const Location& location) {
  if (!result.ok()) location.fail(result.status().message());
  return *std::move(result);
}

void check(const arrow::Status& status, const Location& location) {
  if (!status.ok()) location.fail(status.message());
}

/// Converts types without a DataType of their own (extension, dictionary, views); children are not converted.
std::shared_ptr<arrow::ArrayData> resolved(const std::shared_ptr<arrow::ArrayData>& given,
                                           const Location& location) {
  const auto cast_to = [&](const std::shared_ptr<arrow::DataType>& type) {
    const auto array = arrow::MakeArray(given);
    check(array->ValidateFull(), location);
    return value(arrow::compute::Cast(array, type), location).array();
  };
  const auto& type = *given->type;
  switch (type.id()) {
    case arrow::Type::EXTENSION: {
      auto storage = given->Copy();
      storage->type = as<arrow::ExtensionType>(type).storage_type();
      return resolved(storage, location);
    }
    case arrow::Type::DICTIONARY: {
      const arrow::DictionaryArray array(given);
      check(array.ValidateFull(), location);
      return resolved(value(arrow::compute::Take(array.dictionary(), array.indices()), location).array(),
                      location);
    }
    case arrow::Type::STRING_VIEW:
      return cast_to(arrow::utf8());
    case arrow::Type::BINARY_VIEW:
      return cast_to(arrow::binary());
    default:
      return given;
  }
}

std::shared_ptr<arrow::ArrayData> plain(const std::shared_ptr<arrow::ArrayData>& given,
                                        const std::shared_ptr<arrow::DataType>& type,
                                        const Location& location) {
  auto made = resolved(given, location)->Copy();
  made->type = type;
  for (std::size_t child = 0; child < made->child_data.size(); ++child) {
    const auto& field = *type->field(static_cast<int>(child));
    const auto at = location.within(fmt::format("field '{}'", field.name().substr(0, 100)));
    made->child_data[child] = plain(made->child_data[child], field.type(), at);
  }
  return made;
}

std::int64_t bits_of(const arrow::DataType& type) { return as<arrow::FixedWidthType>(type).bit_width(); }

std::int64_t value_bytes(const arrow::ArrayData& array, std::int64_t first, std::int64_t count);

/// Text, binary and lists: their offsets, and what is between the first and the last of them.
template <typename Offset>
std::int64_t value_bytes_by_offsets(const arrow::ArrayData& array, std::int64_t first, std::int64_t count) {
  if (count == 0) return 0;
  const auto* offsets = array.GetValues<Offset>(1) + first;
  const std::int64_t inside = offsets[count] - offsets[0];
  return static_cast<std::int64_t>(sizeof(Offset)) * count +
         (array.child_data.empty() ? inside : value_bytes(*array.child_data.front(), offsets[0], inside));
}

/// The memory that the values of these rows take, without reading them.
std::int64_t value_bytes(const arrow::ArrayData& array, std::int64_t first, std::int64_t count) {
  const auto& type = *array.type;
  switch (type.id()) {
    case arrow::Type::NA:
      return 0;
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
    case arrow::Type::LIST:
      return value_bytes_by_offsets<std::int32_t>(array, first, count);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_LIST:
      return value_bytes_by_offsets<std::int64_t>(array, first, count);
    case arrow::Type::FIXED_SIZE_LIST: {
      const std::int64_t length = as<arrow::FixedSizeListType>(type).list_size();
      return value_bytes(*array.child_data.front(), (array.offset + first) * length, count * length);
    }
    case arrow::Type::STRUCT: {
      std::int64_t bytes = 0;
      for (const auto& child : array.child_data) bytes += value_bytes(*child, array.offset + first, count);
      return bytes;
    }
    default:
      return bits_of(type) * count / 8;
  }
}

/// Copies rows of a column into a new array, adjacent rows together.
class RowCopier {
 public:
  explicit RowCopier(const ColumnData& data) : data_(data) {
    check(arrow::MakeBuilder(arrow::default_memory_pool(), data.type().arrow(), &builder_));
  }

  /// Copies one or more rows beginning at `start`, up to `count`, as far as they are adjacent. Returns how
  /// many.
  std::int64_t copy(const RowMap& rows, std::int64_t start, std::int64_t count) {
    const auto located = data_.locate(rows[start]);
    const auto& array = *data_.chunks()[located.chunk].array;
    const auto first = located.row - array.offset();
    const auto most = std::min(array.length() - first, count);
    std::int64_t joined = rows.is_range() ? most : 1;
    while (joined < most && rows[start + joined] == rows[start] + joined) ++joined;
    const auto [span, fresh] = spans_.try_emplace(located.chunk);
    if (fresh) span->second.SetMembers(*array.data());
    check(builder_->AppendArraySlice(span->second, first, joined));
    return joined;
  }

  ArrayPointer finish() {
    ArrayPointer array;
    check(builder_->Finish(&array));
    return array;
  }

 private:
  void check(const arrow::Status& status) const {
    if (status.ok()) return;
    if (!status.IsCapacityError()) throw Error("cannot copy the rows: " + status.message() + ".");
    throw UsageError(fmt::format(
        "the rows' {} values take more than 2^31 - 1 bytes or elements together. Write fewer rows "
        "in a batch, or cast the column to its large type.",
        data_.type().text()));
  }

  const ColumnData& data_;
  std::unique_ptr<arrow::ArrayBuilder> builder_;
  /// Spans of the chunks that rows were copied from.
  std::unordered_map<std::size_t, arrow::ArraySpan> spans_;
};

DataType byte_for_null(const DataType& type) {
  return type.kind() == TypeKind::null ? DataType(TypeKind::int8) : type;
}

/// The values, which are bytes where `type` has nulls and all null there, with that type.
std::shared_ptr<arrow::ArrayData> with_nulls(const arrow::ArrayData& values, const DataType& type) {
  if (type.kind() == TypeKind::null) return arrow::NullArray(values.length).data();
  auto made = values.Copy();
  made->type = type.arrow();
  for (std::size_t child = 0; child < made->child_data.size(); ++child)
    made->child_data[child] = with_nulls(*made->child_data[child], type.fields()[child].type);
  return made;
}

std::vector<Field> fields_of(const arrow::FieldVector& given, const Location& location) {
  std::vector<Field> fields;
  for (const auto& field : given) {
    const auto at = location.within(fmt::format("column '{}'", utf8_text(field->name().substr(0, 100))));
    if (first_not_utf8(field->name()) != std::string::npos) at.fail("its name is not UTF-8 text");
    fields.push_back({field->name(), type_of(*field->type(), at), field->nullable()});
  }
  return fields;
}

std::int32_t checked_width(std::int32_t width, const Location& location) {
  if (width < 1) location.fail(fmt::format("it has a fixed size of {}", width));
  return width;
}

}  // namespace

DataType type_of(const arrow::DataType& type, const Location& location) {
  const auto child = [&] { return type_of(*type.field(0)->type(), location); };
  switch (type.id()) {
    case arrow::Type::STRING_VIEW:
      return DataType(TypeKind::utf8);
    case arrow::Type::BINARY_VIEW:
      return DataType(TypeKind::binary);
    case arrow::Type::EXTENSION:
      return type_of(*static_cast<const arrow::ExtensionType&>(type).storage_type(), location);
    case arrow::Type::DICTIONARY:
      return type_of(*static_cast<const arrow::DictionaryType&>(type).value_type(), location);
    // A map is a list of structs of a key and a value.
    case arrow::Type::MAP:
    case arrow::Type::LIST:
      return DataType::list(child());
    case arrow::Type::LARGE_LIST:
      return DataType::list(child(), true);
    case arrow::Type::FIXED_SIZE_LIST:
      return DataType::fixed_size_list(
          child(), checked_width(static_cast<const arrow::FixedSizeListType&>(type).list_size(), location));
    case arrow::Type::STRUCT:
      return DataType::struct_(fields_of(type.fields(), location));
    case arrow::Type::FIXED_SIZE_BINARY:
      checked_width(type.byte_width(), location);
      break;
    case arrow::Type::TIMESTAMP:
      if (first_not_utf8(as<arrow::TimestampType>(type).timezone()) != std::string::npos)
        location.fail("its time zone is not UTF-8 text");
      break;
    default:
      break;
  }
  const auto* found =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& one) { return one.id == type.id(); });
  if (found != kKnown.end()) return ArrowTypes::make(found->kind, type.GetSharedPtr());
  location.fail(
      fmt::format("its type ({}) is not supported. Convert the column before it is written, in Python: "
                  "table.set_column(...) with pyarrow.compute.cast",
                  type.ToString()));
}

FileSchema schema_of(const arrow::Schema& schema, const Location& location) {
  FileSchema result{
      fields_of(schema.fields(), location), {}, arrow::schema(schema.fields(), schema.metadata())};
  if (const auto& metadata = schema.metadata()) {
    for (std::int64_t entry = 0; entry < metadata->size(); ++entry)
      result.metadata.emplace(metadata->key(entry), metadata->value(entry));
  }
  return result;
}

std::shared_ptr<arrow::Schema> to_arrow(const std::vector<Field>& fields) {
  arrow::FieldVector made;
  for (const auto& field : fields) made.push_back(arrow::field(field.name, field.type.arrow()));
  return arrow::schema(std::move(made));
}

void Location::fail(const std::string& what) const {
  throw DataError(fmt::format("'{}' is not a valid Arrow file: {}: {}.", file_, where_, what));
}

bool differs_in_layout_only(const arrow::DataType& one, const arrow::DataType& other) {
  using Type = arrow::Type;
  const auto both = [&](Type::type small, Type::type large) {
    return (one.id() == small || one.id() == large) && (other.id() == small || other.id() == large);
  };
  if (one.Equals(other) || both(Type::STRING, Type::LARGE_STRING) || both(Type::BINARY, Type::LARGE_BINARY) ||
      both(Type::TIME32, Type::TIME64))
    return true;
  if (both(Type::LIST, Type::LARGE_LIST))
    return differs_in_layout_only(*one.field(0)->type(), *other.field(0)->type());
  if (one.id() != other.id()) return false;
  if (one.id() == Type::TIMESTAMP)
    return static_cast<const arrow::TimestampType&>(one).timezone() ==
           static_cast<const arrow::TimestampType&>(other).timezone();
  if (one.id() != Type::STRUCT) return one.id() == Type::DURATION;
  const auto same_field = [](const auto& a, const auto& b) {
    return a->name() == b->name() && differs_in_layout_only(*a->type(), *b->type());
  };
  return std::equal(one.fields().begin(), one.fields().end(), other.fields().begin(), other.fields().end(),
                    same_field);
}

std::optional<DataType> unified(const DataType& one, const DataType& other, bool in_files) {
  auto options = arrow::Field::MergeOptions::Defaults();
  options.promote_integer_to_float = in_files;
  options.promote_numeric_width = in_files;
  // Arrow would also take text and bytes for one type.
  const bool widens = in_files && differs_in_layout_only(*one.arrow(), *other.arrow());
  options.promote_binary = options.promote_list = options.promote_temporal_unit = widens;
  const auto merged = arrow::field("", one.arrow())->MergeWith(*arrow::field("", other.arrow()), options);
  if (!merged.ok()) return std::nullopt;
  return type_of(*(*merged)->type(), Location("memory", "a column"));
}

ArrayPointer plain_array(const std::shared_ptr<arrow::ArrayData>& array, const Location& location) {
  return arrow::MakeArray(plain(array, type_of(*array->type, location).arrow(), location));
}

DataType with_parts(const DataType& type, const std::function<DataType(const DataType&)>& change) {
  if (type.kind() == TypeKind::fixed_size_list)
    return DataType::fixed_size_list(with_parts(type.element(), change), type.width());
  if (type.is_list())
    return DataType::list(with_parts(type.element(), change), type.kind() == TypeKind::large_list);
  if (type.kind() != TypeKind::struct_) return change(type);
  auto fields = type.fields();
  for (auto& field : fields) field.type = with_parts(field.type, change);
  return DataType::struct_(std::move(fields));
}

bool has_cast(const DataType& from, const DataType& to) {
  const auto is_number = [](const DataType& type) { return type.is_integer() || type.is_floating(); };
  const bool to_text = to.kind() == TypeKind::utf8 || to.kind() == TypeKind::large_utf8;
  if (from == to || from.kind() == TypeKind::null || from.is_temporal() || to.is_temporal()) return true;
  if (from.is_text_or_binary()) return to.is_text_or_binary() || to.is_decimal();
  if ((is_number(from) || from.is_decimal()) && to.is_decimal()) return true;
  if (from.kind() == TypeKind::boolean || is_number(from))
    return is_number(to) || to.kind() == TypeKind::boolean || to_text;
  if (from.is_list()) return to.is_list() && has_cast(from.element(), to.element());
  if (from.kind() != TypeKind::struct_ || to.kind() != TypeKind::struct_) return false;
  // Arrow would drop a field that the other type has not.
  return std::all_of(from.fields().begin(), from.fields().end(), [&](const Field& field) {
    const auto& others = to.fields();
    const auto other =
        std::find_if(others.begin(), others.end(), [&](const Field& one) { return one.name == field.name; });
    return other != others.end() && has_cast(field.type, other->type);
  });
}

ArrayPointer cast(const ArrayPointer& array, const DataType& to) {
  // If lists or structures inside others keep their type, Arrow gives the nulls in them a wrong length.
  const auto target = with_parts(to, byte_for_null);
  const auto made = arrow::compute::Cast(array, target.arrow());
  if (!made.ok()) throw UsageError(made.status().message());
  const auto result = target == to ? made->array() : with_nulls(*made->array(), to);
  const auto damage = damage_of(*result);
  if (!damage.empty())
    throw Error(
        fmt::format("Arrow's conversion to {} has returned an invalid array: {}.", to.text(), damage));
  return arrow::MakeArray(result);
}

ArrayPointer rows_of(const Column& column, std::int64_t start, std::int64_t count) {
  if (column.rows().is_range() && count > 0 && rows_in_chunk(column, start) >= count) {
    const auto& data = *column.data();
    const auto located = data.locate(column.rows()[start]);
    const auto& array = data.chunks()[located.chunk].array;
    return array->Slice(located.row - array->offset(), count);
  }
  RowCopier copier(*column.data());
  for (auto row = start; row < start + count;) row += copier.copy(column.rows(), row, start + count - row);
  return copier.finish();
}

bool is_whole(const Column& column) {
  return column.rows().is_range() && column.size() == column.data()->size();
}

std::int64_t rows_in_chunk(const Column& column, std::int64_t start) {
  const auto& data = *column.data();
  const auto row = column.rows()[start];
  return std::min(column.size() - start, data.start(data.locate(row).chunk + 1) - row);
}

std::int64_t value_bytes(const Column& column, std::int64_t start, std::int64_t count) {
  const auto& data = *column.data();
  if (arrow::is_fixed_width(*data.type().arrow())) return bits_of(*data.type().arrow()) * count / 8;
  const auto& rows = column.rows();
  std::int64_t bytes = 0;
  for (std::int64_t done = 0; done < count;) {
    const auto located = data.locate(rows[start + done]);
    const auto& array = *data.chunks()[located.chunk].array;
    const auto some = rows.is_range() ? std::min(count - done, rows_in_chunk(column, start + done)) : 1;
    bytes += value_bytes(*array.data(), located.row - array.offset(), some);
    done += some;
  }
  return bytes;
}

std::int64_t value_bytes(const Columns& columns, std::int64_t start, std::int64_t count) {
  std::int64_t bytes = 0;
  for (const auto& [name, column] : columns) bytes += value_bytes(column, start, count);
  return bytes;
}

std::int64_t piece_rows(const Columns& columns, std::int64_t start, std::int64_t most) {
  while (most > 1 && value_bytes(columns, start, most) > kPieceBytes) most /= 2;
  return most;
}

std::vector<table::Chunk> pieces_of(const Column& column) {
  if (is_whole(column)) return column.data()->chunks();
  std::vector<table::Chunk> pieces;
  const auto add = [&](std::int64_t start, std::int64_t count) {
    pieces.push_back({rows_of(column, start, count)});
    return count;
  };
  if (column.rows().is_range()) {
    for (std::int64_t start = 0; start < column.size();) start += add(start, rows_in_chunk(column, start));
  } else {
    each_piece({{"", column}}, column.size(), kPieceRows, add);
  }
  return pieces;
}

std::vector<ArrayPointer> fields_of(const arrow::Array& structures) {
  return static_cast<const arrow::StructArray&>(structures).fields();
}

}  // namespace lockstep::arrow_file
