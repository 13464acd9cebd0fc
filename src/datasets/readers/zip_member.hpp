#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::readers {

/// The only file in a ZIP archive.
struct ZipMember {
  std::string name;
  /// Whether it is compressed with Deflate; otherwise it is stored as it is.
  bool is_deflated = false;
  /// Where its bytes are in the archive.
  std::uint64_t begin = 0;
  std::uint64_t packed_bytes = 0;
  /// What they become.
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};

/// Folders, hidden files and what macOS adds do not count. Throws DataError, naming the archive and saying
/// what to do, if it has no file or several, or if the file is encrypted or compressed in another way.
ZipMember only_member(const std::filesystem::path& archive);

/// The CRC-32 of ZIP and gzip (IEEE 802.3), continued from `before`, the checksum of what came before.
std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before = 0) noexcept;

}  // namespace lockstep::readers
