#include "net/store_protocol.hpp"

#include <bit>
#include <cstring>

namespace lockstep::net {

static_assert(std::endian::native == std::endian::little, "the protocol's numbers are little-endian");

std::string wire_number(std::uint64_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::uint64_t read_number(std::string_view bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

std::string greeting(std::uint32_t nonce) {
  std::string bytes(1, static_cast<char>(QueryType::validate));
  bytes.append(reinterpret_cast<const char*>(&kValidationMagic), sizeof kValidationMagic);
  bytes += static_cast<char>(QueryType::ping);
  return bytes.append(reinterpret_cast<const char*>(&nonce), sizeof nonce);
}

Writer& Writer::type(QueryType type) {
  bytes_ += static_cast<char>(type);
  return *this;
}

Writer& Writer::number(std::uint64_t value) {
  bytes_ += wire_number(value);
  return *this;
}

Writer& Writer::text(std::string_view value) {
  number(value.size());
  bytes_ += value;
  return *this;
}

}  // namespace lockstep::net
