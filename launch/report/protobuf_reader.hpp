#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// One field of a message of Protocol Buffers.
struct ProtobufField {
  unsigned number = 0;
  /// Of the kinds varint, fixed64 and fixed32.
  std::uint64_t bits = 0;
  /// Of the kind bytes: a text, a message, or packed numbers. Points into the message.
  std::string_view bytes;
  bool is_bytes = false;

  double as_double() const;
  double as_float() const;
};

/// The fields of a message, in its order; nothing if the bytes are not a message. *Local*.
std::optional<std::vector<ProtobufField>> protobuf_fields(std::string_view message);

}  // namespace lockstep::launch
