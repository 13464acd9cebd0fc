#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::checksum {

/// Updates a CRC-32C with `bytes` bytes by table: the fallback for processors without the instruction, and
/// the reference for its test. `state` is the inverted checksum so far.
std::uint32_t update_by_table(std::uint32_t state, const unsigned char* data, std::size_t bytes) noexcept;

}  // namespace lockstep::checksum
