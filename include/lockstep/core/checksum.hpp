#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// Incremental CRC-32C (RFC 3720, the checksum of iSCSI and ext4). It detects every flipped bit and every
/// burst of up to 32 bits; it does not protect against deliberate changes. *Local*.
class Crc32c {
 public:
  /// Adds the next `bytes` bytes. Uses the processor's CRC instruction if available.
  void update(const void* data, std::size_t bytes) noexcept;
  /// The checksum of all bytes so far.
  std::uint32_t value() const noexcept { return ~register_; }

 private:
  std::uint32_t register_ = ~std::uint32_t{0};
};

/// The checksum of one buffer.
std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept;

/// A checksum as eight hexadecimal digits.
std::string checksum_text(std::uint32_t checksum);

/// A file's size and checksum.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

/// Reads the whole file. Throws DataError, as InputFile does, if the file cannot be read.
FileDigest digest_of(const std::filesystem::path& path);

}  // namespace lockstep
