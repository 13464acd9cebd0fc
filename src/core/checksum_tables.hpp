#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::checksum {

/// One step of CRC-32C over `bytes` bytes by table: what every processor can do, and what the instruction is
/// tested against. `state` is the inverted checksum so far.
std::uint32_t update_by_table(std::uint32_t state, const unsigned char* data, std::size_t bytes) noexcept;

}  // namespace lockstep::checksum
