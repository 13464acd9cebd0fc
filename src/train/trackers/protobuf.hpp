#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8_check.hpp"

namespace lockstep::protobuf {

/// A message of Protocol Buffers, written field by field in ascending order of their numbers
/// (protobuf.dev/programming-guides/encoding). The caller leaves out fields that have their default values,
/// as the official libraries do.
class Message {
 public:
  Message& number(unsigned field, std::uint64_t value) {
    key(field, kVarint);
    varint(value);
    return *this;
  }
  Message& real(unsigned field, double value) {
    key(field, kFixed64);
    fixed(std::bit_cast<std::uint64_t>(value), sizeof value);
    return *this;
  }
  Message& real(unsigned field, float value) {
    key(field, kFixed32);
    fixed(std::bit_cast<std::uint32_t>(value), sizeof value);
    return *this;
  }
  /// Readers refuse text that is not UTF-8: see utf8_text().
  Message& text(unsigned field, std::string_view value) { return content(field, utf8_text(value)); }
  Message& message(unsigned field, const Message& value) { return content(field, value.bytes_); }
  /// A repeated field in packed form.
  Message& reals(unsigned field, const std::vector<double>& values) {
    if (values.empty()) return *this;
    key(field, kBytes);
    varint(values.size() * sizeof(double));
    for (const double value : values) fixed(std::bit_cast<std::uint64_t>(value), sizeof value);
    return *this;
  }

  const std::string& bytes() const noexcept { return bytes_; }

 private:
  enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  void key(unsigned field, Wire wire) { varint((std::uint64_t{field} << 3U) | wire); }
  Message& content(unsigned field, std::string_view bytes) {
    key(field, kBytes);
    varint(bytes.size());
    bytes_ += bytes;
    return *this;
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) bytes_ += static_cast<char>(value | 0x80U);
    bytes_ += static_cast<char>(value);
  }
  void fixed(std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }

  std::string bytes_;
};

}  // namespace lockstep::protobuf
