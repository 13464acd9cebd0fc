#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// CRC-32C (RFC 3720, the checksum of iSCSI and ext4), piece by piece. It finds every flipped bit and every
/// burst of up to 32 bits; it is no protection against somebody who means harm. *Local*.
class Crc32c {
 public:
  /// Takes in the next `bytes` bytes. Uses the processor's own instruction where there is one.
  void update(const void* data, std::size_t bytes) noexcept;
  /// The checksum of everything so far.
  std::uint32_t value() const noexcept { return ~register_; }

 private:
  std::uint32_t register_ = ~std::uint32_t{0};
};

/// The checksum of one piece of memory.
std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept;

/// A checksum as eight hexadecimal digits.
std::string checksum_text(std::uint32_t checksum);

/// A file's size and checksum, from reading it to its end.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;
};

/// Throws DataError, as InputFile does, when the file cannot be read.
FileDigest digest_of(const std::filesystem::path& path);

}  // namespace lockstep
