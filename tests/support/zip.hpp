#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::testing {

inline std::string little_endian(std::uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

/// The directory and the end of an archive with these names, behind `before` bytes of content: no record is
/// there.
inline std::string zip_directory(const std::vector<std::string>& names, std::size_t before = 0) {
  std::string directory;
  for (const auto& name : names) {
    directory += "PK\x01\x02" + std::string(24, '\0') + little_endian(name.size(), 2) + little_endian(0, 2) +
                 little_endian(0, 2) + std::string(12, '\0') + name;
  }
  return std::string(before, 'x') + directory + "PK\x05\x06" + std::string(8, '\0') +
         little_endian(directory.size(), 4) + little_endian(before, 4) + little_endian(0, 2);
}

/// A complete archive, not compressed.
inline std::string zip_archive(const std::vector<std::pair<std::string, std::string>>& records) {
  std::string content, directory;
  for (const auto& [name, bytes] : records) {
    const auto sizes = little_endian(bytes.size(), 4) + little_endian(bytes.size(), 4);
    directory += "PK\x01\x02" + std::string(16, '\0') + sizes + little_endian(name.size(), 2) +
                 std::string(12, '\0') + little_endian(content.size(), 4) + name;
    content += "PK\x03\x04" + std::string(14, '\0') + sizes + little_endian(name.size(), 2) +
               std::string(2, '\0') + name + bytes;
  }
  return content + directory + "PK\x05\x06" + std::string(8, '\0') + little_endian(directory.size(), 4) +
         little_endian(content.size(), 4) + little_endian(0, 2);
}

}  // namespace lockstep::testing
