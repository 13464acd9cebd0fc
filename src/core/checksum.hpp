#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/core/atomic_file.hpp"

namespace lockstep {

/// Incremental CRC-32C (RFC 3720, the checksum of iSCSI and ext4). It detects every flipped bit and every
/// burst of up to 32 bits; it does not protect against deliberate changes. *Local*.
class Crc32c {
 public:
  Crc32c() noexcept = default;
  /// Continues with the checksum of the bytes so far.
  explicit Crc32c(std::uint32_t value) noexcept : register_(~value) {}

  /// Adds the next `bytes` bytes. Uses the processor's CRC instruction if available.
  void update(const void* data, std::size_t bytes) noexcept;
  /// The checksum of all bytes so far.
  std::uint32_t value() const noexcept { return ~register_; }

 private:
  std::uint32_t register_ = ~std::uint32_t{0};
};

/// The checksum of one buffer.
std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept;

/// The checksum of two buffers one behind the other, of their checksums and the length of the second: parts
/// of a whole can be computed by several threads or ranks.
std::uint32_t join_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept;

/// A checksum as eight hexadecimal digits.
std::string checksum_text(std::uint32_t checksum);

/// Reads the whole file. Throws DataError, as InputFile does, if the file cannot be read.
FileDigest digest_of(const std::filesystem::path& path);

}  // namespace lockstep
