#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/input_file.hpp"

namespace lockstep {

/// A file in a ZIP archive.
struct ZipEntry {
  std::string name;
  bool is_encrypted = false;
  /// 0: stored as it is; 8: Deflate.
  unsigned method = 0;
  std::uint32_t crc32 = 0;
  std::uint64_t packed_bytes = 0;
  std::uint64_t bytes = 0;
  /// Where its own header begins.
  std::uint64_t header = 0;
};

/// The files in a ZIP archive, from its central directory (PKWARE's APPNOTE 4.3, with ZIP64). Empty if the
/// file is not a ZIP archive or its directory is inconsistent; the archive need not be trusted. Throws
/// DataError if the file cannot be read.
std::vector<ZipEntry> zip_directory(const InputFile& archive);

/// Where the bytes of a file begin in the archive; nothing if they are not within the archive.
std::optional<std::uint64_t> find_zip_data(const InputFile& archive, const ZipEntry& entry);

}  // namespace lockstep
