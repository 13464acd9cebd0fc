#include "schema_writer.hpp"

#include "flat_types.hpp"
#include "flat_writer.hpp"

namespace lockstep::arrow_file {
namespace {

using Slots = std::vector<FlatWriter::Slot>;

/// The number of a type and the scalars of its table.
struct Code {
  std::uint8_t number;
  Slots slots;
};

std::uint64_t unit_code(const std::string& unit) {
  return unit == "s" ? 0 : unit == "ms" ? 1 : unit == "us" ? 2 : 3;
}

Code integer(const DataType& type) {
  const bool is_signed = type.kind() <= TypeKind::int64;
  return {flat::kInt, {{0, 4, type.value_bytes() * 8}, {1, 1, is_signed ? 1U : 0U}}};
}

Code floating(TypeKind kind) {
  return {flat::kFloatingPoint,
          {{0, 2, static_cast<std::uint64_t>(kind) - static_cast<std::uint64_t>(TypeKind::float16)}}};
}

Code time(const DataType& type) {
  return {flat::kTime, {{0, 2, unit_code(type.unit())}, {1, 4, type.value_bytes() * 8}}};
}

Code timestamp(const DataType& type) {
  Code code{flat::kTimestamp, {{0, 2, unit_code(type.unit())}}};
  if (!type.zone().empty()) code.slots.push_back(FlatWriter::reference(1));
  return code;
}

Code code_of(const DataType& type) {
  const auto width = static_cast<std::uint64_t>(type.width());
  if (type.is_integer()) return integer(type);
  if (type.is_floating()) return floating(type.kind());
  switch (type.kind()) {
    case TypeKind::boolean:
      return {flat::kBool, {}};
    case TypeKind::utf8:
      return {flat::kUtf8, {}};
    case TypeKind::large_utf8:
      return {flat::kLargeUtf8, {}};
    case TypeKind::binary:
      return {flat::kBinary, {}};
    case TypeKind::large_binary:
      return {flat::kLargeBinary, {}};
    case TypeKind::fixed_size_binary:
      return {flat::kFixedSizeBinary, {{0, 4, width}}};
    case TypeKind::list:
      return {flat::kList, {}};
    case TypeKind::large_list:
      return {flat::kLargeList, {}};
    case TypeKind::fixed_size_list:
      return {flat::kFixedSizeList, {{0, 4, width}}};
    case TypeKind::structure:
      return {flat::kStruct, {}};
    case TypeKind::date32:
      return {flat::kDate, {{0, 2, 0}}};
    case TypeKind::date64:
      return {flat::kDate, {{0, 2, 1}}};
    case TypeKind::time32:
    case TypeKind::time64:
      return time(type);
    case TypeKind::timestamp:
      return timestamp(type);
    case TypeKind::duration:
      return {flat::kDuration, {{0, 2, unit_code(type.unit())}}};
    default:
      return {flat::kNull, {}};
  }
}

std::size_t write_field(FlatWriter& writer, const Field& field);

std::size_t write_fields(FlatWriter& writer, const std::vector<Field>& fields) {
  const auto vector = writer.references(fields.size());
  for (std::size_t place = 0; place < fields.size(); ++place) {
    writer.link(vector + 4 + 4 * place, write_field(writer, fields[place]));
  }
  return vector;
}

std::size_t write_field(FlatWriter& writer, const Field& field) {
  const auto code = code_of(field.type);
  const auto table = writer.table({FlatWriter::reference(0),
                                   {1, 1, field.nullable ? 1U : 0U},
                                   {2, 1, code.number},
                                   FlatWriter::reference(3),
                                   FlatWriter::reference(5)});
  writer.link(table.fields[0], writer.text(field.name));
  const auto type = writer.table(code.slots);
  writer.link(table.fields[3], type.position);
  if (!field.type.zone().empty()) writer.link(type.fields[1], writer.text(field.type.zone()));
  writer.link(table.fields[4], write_fields(writer, field.type.fields()));
  return table.position;
}

std::size_t write_metadata(FlatWriter& writer, const std::map<std::string, std::string>& metadata) {
  const auto vector = writer.references(metadata.size());
  std::size_t place = vector + 4;
  for (const auto& [key, value] : metadata) {
    const auto pair = writer.table({FlatWriter::reference(0), FlatWriter::reference(1)});
    writer.link(place, pair.position);
    writer.link(pair.fields[0], writer.text(key));
    writer.link(pair.fields[1], writer.text(value));
    place += 4;
  }
  return vector;
}

}  // namespace

std::string schema_message(const std::vector<Field>& fields,
                           const std::map<std::string, std::string>& metadata) {
  FlatWriter writer;
  const auto message =
      writer.table({{3, 8, 0}, {0, 2, flat::kVersion5}, {1, 1, flat::kSchema}, FlatWriter::reference(2)});
  const auto schema = writer.table({{0, 2, 0}, FlatWriter::reference(1), FlatWriter::reference(2)});
  writer.link(message.fields[3], schema.position);
  writer.link(schema.fields[1], write_fields(writer, fields));
  writer.link(schema.fields[2], write_metadata(writer, metadata));
  return writer.finish(message.position);
}

}  // namespace lockstep::arrow_file
