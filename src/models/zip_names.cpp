#include "zip_names.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

/// Sizes of the archive's records without their variable parts, and the maximum length of the comment at its
/// end.
constexpr std::uint64_t kEndSize = 22, kEnd64LocatorSize = 20, kEnd64Size = 56, kEntrySize = 46,
                        kLongestComment = 65535;
/// Maximum size of a central directory.
constexpr std::uint64_t kLargestDirectory = 256 << 20;

std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

class Archive {
 public:
  explicit Archive(const std::filesystem::path& path) : file_(path, std::ios::binary | std::ios::ate) {
    if (!file_) throw DataError("'" + path.string() + "' cannot be read: is it there, and may you read it?");
    size_ = static_cast<std::uint64_t>(file_.tellg());
  }

  std::string read(std::uint64_t begin, std::uint64_t length) {
    if (begin > size_ || length > size_ - begin || length > kLargestDirectory) return {};
    std::string bytes(length, '\0');
    file_.seekg(static_cast<std::streamoff>(begin));
    file_.read(bytes.data(), static_cast<std::streamsize>(length));
    return file_ ? bytes : std::string();
  }

  std::uint64_t size() const { return size_; }

 private:
  std::ifstream file_;
  std::uint64_t size_ = 0;
};

/// The central directory; empty if there is none.
std::string directory_of(Archive& archive) {
  const std::uint64_t tail = std::min(archive.size(), kEndSize + kLongestComment + kEnd64LocatorSize);
  const std::string end = archive.read(archive.size() - tail, tail);
  const auto place = end.rfind("PK\x05\x06");
  if (place == std::string::npos || place + kEndSize > end.size()) return {};
  std::uint64_t length = number(end, place + 12, 4), begin = number(end, place + 16, 4);
  const bool large = length == 0xffffffff || begin == 0xffffffff;
  if (large && place >= kEnd64LocatorSize) {
    const std::string whole = archive.read(number(end, place - kEnd64LocatorSize + 8, 8), kEnd64Size);
    if (!whole.starts_with("PK\x06\x06")) return {};
    length = number(whole, 40, 8);
    begin = number(whole, 48, 8);
  }
  return archive.read(begin, length);
}

}  // namespace

std::vector<std::string> zip_names(const std::filesystem::path& path) {
  Archive archive(path);
  const std::string directory = directory_of(archive);
  std::vector<std::string> names;
  for (std::size_t at = 0; at + kEntrySize <= directory.size();) {
    if (std::string_view(directory).substr(at, 4) != "PK\x01\x02") return {};
    const auto name = number(directory, at + 28, 2);
    const auto rest = number(directory, at + 30, 2) + number(directory, at + 32, 2);
    if (at + kEntrySize + name > directory.size()) return {};
    names.push_back(directory.substr(at + kEntrySize, name));
    at += kEntrySize + name + rest;
  }
  return names;
}

}  // namespace lockstep::models
