// The wire format (protobuf.dev/programming-guides/encoding), as far as TensorBoard's event files need it.
// The library itself would be one more dependency of the launcher, for messages of which a report reads ten
// fields.
#include "report/protobuf_reader.hpp"

#include <bit>

namespace lockstep::launch {
namespace {

enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::optional<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> take_fixed(std::string_view& rest, std::size_t size) {
  if (rest.size() < size) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(rest[i])} << (8 * i);
  rest.remove_prefix(size);
  return value;
}

bool take_value(std::string_view& rest, unsigned wire, ProtobufField& field) {
  if (wire == kBytes) {
    const auto size = take_varint(rest);
    if (!size || *size > rest.size()) return false;
    field.is_bytes = true;
    field.bytes = rest.substr(0, static_cast<std::size_t>(*size));
    rest.remove_prefix(field.bytes.size());
    return true;
  }
  if (wire != kVarint && wire != kFixed64 && wire != kFixed32) return false;
  const auto bits = wire == kVarint ? take_varint(rest) : take_fixed(rest, wire == kFixed64 ? 8 : 4);
  field.bits = bits.value_or(0);
  return bits.has_value();
}

}  // namespace

double ProtobufField::as_double() const { return std::bit_cast<double>(bits); }

double ProtobufField::as_float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

std::optional<std::vector<ProtobufField>> protobuf_fields(std::string_view message) {
  std::vector<ProtobufField> fields;
  while (!message.empty()) {
    const auto key = take_varint(message);
    if (!key || *key > 0xffffffffU) return std::nullopt;
    ProtobufField field;
    field.number = static_cast<unsigned>(*key >> 3U);
    if (!take_value(message, static_cast<unsigned>(*key & 7U), field)) return std::nullopt;
    fields.push_back(field);
  }
  return fields;
}

}  // namespace lockstep::launch
