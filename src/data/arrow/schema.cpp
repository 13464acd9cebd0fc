#include "schema.hpp"

#include <array>

#include "flat_types.hpp"

namespace lockstep::arrow_file {
namespace {

constexpr int kDeepest = 64;
/// Of all columns and fields together; a flatbuffer may show one table many times.
constexpr int kMostFields = 100000;

constexpr std::array<const char*, 27> kTypeNames = {"none",
                                                    "null",
                                                    "int",
                                                    "floating point",
                                                    "binary",
                                                    "utf8",
                                                    "bool",
                                                    "decimal",
                                                    "date",
                                                    "time",
                                                    "timestamp",
                                                    "interval",
                                                    "list",
                                                    "struct",
                                                    "union",
                                                    "fixed size binary",
                                                    "fixed size list",
                                                    "map",
                                                    "duration",
                                                    "large binary",
                                                    "large utf8",
                                                    "large list",
                                                    "run-end encoded",
                                                    "binary view",
                                                    "utf8 view",
                                                    "list view",
                                                    "large list view"};

std::string type_name(std::uint8_t code) {
  return code < kTypeNames.size() ? kTypeNames[code] : "number " + std::to_string(code);
}

[[noreturn]] void refuse(std::uint8_t code, const Place& place) {
  place.fail("its type (" + type_name(code) +
             ") is not supported. Convert the column before it is written, in "
             "Python: table.set_column(...) with pyarrow.compute.cast");
}

DataType integer(const FlatTable& type, const Place& place) {
  const auto bits = type.number<std::int32_t>(0, 0);
  const auto first = type.flag(1) ? TypeKind::int8 : TypeKind::uint8;
  const int step = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : bits == 64 ? 3 : -1;
  if (step < 0) place.fail("it has integers of " + std::to_string(bits) + " bits");
  return DataType(static_cast<TypeKind>(static_cast<int>(first) + step));
}

DataType floating(const FlatTable& type, const Place& place) {
  const auto precision = type.number<std::int16_t>(0, 0);
  if (precision < 0 || precision > 2) place.fail("it has an unknown precision");
  return DataType(static_cast<TypeKind>(static_cast<int>(TypeKind::float16) + precision));
}

std::string unit(const FlatTable& type, std::int16_t otherwise, const Place& place) {
  constexpr std::array<const char*, 4> kUnits = {"s", "ms", "us", "ns"};
  const auto code = type.number<std::int16_t>(0, otherwise);
  if (code < 0 || code > 3) place.fail("it has an unknown unit of time");
  return kUnits[static_cast<std::size_t>(code)];
}

DataType time(const FlatTable& type, const Place& place) {
  const auto bits = type.number<std::int32_t>(1, 32);
  const auto name = unit(type, 1, place);
  const bool coarse = name == "s" || name == "ms";
  if (bits != (coarse ? 32 : 64)) place.fail("its times have " + std::to_string(bits) + " bits");
  return DataType::temporal(coarse ? TypeKind::time32 : TypeKind::time64, name);
}

std::int32_t width(const FlatTable& type, const Place& place) {
  const auto width = type.number<std::int32_t>(0, 0);
  if (width < 1) place.fail("it has a fixed size of " + std::to_string(width));
  return width;
}

const DataType& only_child(const std::vector<FileField>& children, const Place& place) {
  if (children.size() != 1) place.fail("a list has " + std::to_string(children.size()) + " children");
  return children.front().type;
}

DataType structure(const std::vector<FileField>& children) {
  std::vector<Field> fields;
  for (const auto& child : children) fields.push_back({child.name, child.type, child.nullable});
  return DataType::structure(std::move(fields));
}

DataType date(const FlatTable& type) {
  return DataType(type.number<std::int16_t>(0, 1) == 0 ? TypeKind::date32 : TypeKind::date64);
}

DataType type_of(std::uint8_t code, const FlatTable& type, const std::vector<FileField>& children,
                 const Place& place) {
  switch (code) {
    case flat::kNull:
      return DataType(TypeKind::null);
    case flat::kInt:
      return integer(type, place);
    case flat::kFloatingPoint:
      return floating(type, place);
    case flat::kBinary:
      return DataType(TypeKind::binary);
    case flat::kUtf8:
      return DataType(TypeKind::utf8);
    case flat::kBool:
      return DataType(TypeKind::boolean);
    case flat::kDate:
      return date(type);
    case flat::kTime:
      return time(type, place);
    case flat::kTimestamp:
      return DataType::temporal(TypeKind::timestamp, unit(type, 0, place), std::string(type.text(1)));
    case flat::kDuration:
      return DataType::temporal(TypeKind::duration, unit(type, 1, place));
    // A map is a list of structures of a key and a value.
    case flat::kMap:
    case flat::kList:
      return DataType::list(only_child(children, place));
    case flat::kLargeList:
      return DataType::list(only_child(children, place), true);
    case flat::kFixedSizeList:
      return DataType::fixed_size_list(only_child(children, place), width(type, place));
    case flat::kStruct:
      return structure(children);
    case flat::kFixedSizeBinary:
      return DataType::fixed_size_binary(width(type, place));
    case flat::kLargeBinary:
      return DataType(TypeKind::large_binary);
    case flat::kLargeUtf8:
      return DataType(TypeKind::large_utf8);
    default:
      refuse(code, place);
  }
}

FileField::Dictionary dictionary_of(const FlatTable& encoding, const Place& place) {
  const auto index = encoding.table(1);
  return {encoding.number<std::int64_t>(0, 0), index ? integer(*index, place) : DataType(TypeKind::int32)};
}

class Reader {
 public:
  FileField field(const FlatTable& table, const Place& above, int depth) {
    FileField field;
    field.name = std::string(table.text(0));
    const auto place = above.within("column '" + field.name.substr(0, 100) + "'");
    if (depth > kDeepest) place.fail("it lies more than " + std::to_string(kDeepest) + " levels deep");
    if (++count_ > kMostFields)
      place.fail("the schema has more than " + std::to_string(kMostFields) + " fields");
    field.nullable = table.flag(1);
    const auto children = table.tables(5);
    for (std::size_t child = 0; child < children.size(); ++child) {
      field.children.push_back(this->field(children.table(child), place, depth + 1));
    }
    const auto code = table.number<std::uint8_t>(2, 0);
    const auto type = table.table(3);
    if (!type) place.fail("it has no type");
    field.type = type_of(code, *type, field.children, place);
    if (const auto encoding = table.table(4)) field.dictionary = dictionary_of(*encoding, place);
    return field;
  }

 private:
  int count_ = 0;
};

}  // namespace

FileSchema read_schema(const FlatTable& schema, const Place& place) {
  if (schema.number<std::int16_t>(0, 0) != 0)
    place.fail("its numbers are big-endian, which is not supported");
  FileSchema result;
  Reader reader;
  const auto fields = schema.tables(1);
  for (std::size_t field = 0; field < fields.size(); ++field) {
    result.fields.push_back(reader.field(fields.table(field), place, 0));
  }
  const auto metadata = schema.tables(2);
  for (std::size_t entry = 0; entry < metadata.size(); ++entry) {
    const auto pair = metadata.table(entry);
    result.metadata.emplace(pair.text(0), pair.text(1));
  }
  return result;
}

}  // namespace lockstep::arrow_file
