#include "core/checksum_tables.hpp"

#include <array>

namespace lockstep::checksum {
namespace {

/// The reflected form of the polynomial 0x1EDC6F41.
constexpr std::uint32_t kPolynomial = 0x82F63B78;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

std::uint32_t update_by_table(std::uint32_t state, const unsigned char* data, std::size_t bytes) noexcept {
  for (; bytes > 0; --bytes) state = (state >> 8) ^ kTable[(state ^ *data++) & 0xFFU];
  return state;
}

}  // namespace lockstep::checksum
