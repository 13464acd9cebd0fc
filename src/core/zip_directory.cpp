#include "core/zip_directory.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// Sizes of the archive's records without their variable parts, and the maximum length of the comment at its
/// end.
constexpr std::uint64_t kEndSize = 22, kEnd64LocatorSize = 20, kEnd64Size = 56, kEntrySize = 46,
                        kLongestComment = 65535;
/// Maximum size of a central directory.
constexpr std::uint64_t kLargestDirectory = 256 << 20;
/// In a field of 32 bits: the number is in the entry's ZIP64 record.
constexpr std::uint64_t kElsewhere = 0xffffffff;

std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t size) {
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
  std::uint64_t length = number_at(end, place + 12, 4), begin = number_at(end, place + 16, 4);
  if ((length == kElsewhere || begin == kElsewhere) && place >= kEnd64LocatorSize) {
    const std::string whole = archive.read(number_at(end, place - kEnd64LocatorSize + 8, 8), kEnd64Size);
    if (!whole.starts_with("PK\x06\x06")) return {};
    length = number_at(whole, 40, 8);
    begin = number_at(whole, 48, 8);
  }
  return archive.read(begin, length);
}

/// Reads the numbers that the ZIP64 record (1) among an entry's extra fields has; false if they are not all
/// there.
bool read_large(std::string_view extra, ZipEntry& entry) {
  std::string_view record;
  for (std::size_t at = 0; at + 4 <= extra.size() && record.empty(); at += 4 + number_at(extra, at + 2, 2))
    if (number_at(extra, at, 2) == 1) record = extra.substr(at + 4, number_at(extra, at + 2, 2));
  for (auto* value : {&entry.bytes, &entry.packed_bytes, &entry.header}) {
    if (*value != kElsewhere) continue;
    if (record.size() < 8) return false;
    *value = number_at(record, 0, 8);
    record.remove_prefix(8);
  }
  return true;
}

}  // namespace

std::vector<ZipEntry> zip_directory(const std::filesystem::path& path) {
  Archive archive(path);
  const std::string directory = directory_of(archive);
  std::vector<ZipEntry> entries;
  for (std::size_t at = 0; at + kEntrySize <= directory.size();) {
    const auto head = std::string_view(directory).substr(at, kEntrySize);
    if (!head.starts_with("PK\x01\x02")) return {};
    const auto name = number_at(head, 28, 2), extra = number_at(head, 30, 2), comment = number_at(head, 32, 2);
    if (at + kEntrySize + name + extra > directory.size()) return {};
    ZipEntry entry{.name = directory.substr(at + kEntrySize, name),
                   .is_encrypted = (number_at(head, 8, 2) & 1U) != 0,
                   .method = static_cast<unsigned>(number_at(head, 10, 2)),
                   .crc32 = static_cast<std::uint32_t>(number_at(head, 16, 4)),
                   .packed_bytes = number_at(head, 20, 4),
                   .bytes = number_at(head, 24, 4),
                   .header = number_at(head, 42, 4)};
    if (!read_large(std::string_view(directory).substr(at + kEntrySize + name, extra), entry)) return {};
    entries.push_back(std::move(entry));
    at += kEntrySize + name + extra + comment;
  }
  return entries;
}

}  // namespace lockstep
