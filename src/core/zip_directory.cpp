#include "core/zip_directory.hpp"

#include <algorithm>
#include <string_view>

namespace lockstep {
namespace {

/// Sizes of the archive's records without their variable parts, and the maximum length of the comment at its
/// end.
constexpr std::uint64_t kEndSize = 22, kEnd64LocatorSize = 20, kEnd64Size = 56, kEntrySize = 46,
                        kHeaderSize = 30, kLongestComment = 65535;
/// Maximum size of a central directory.
constexpr std::uint64_t kLargestDirectory = 256 << 20;
/// A field of 32 bits with this value has its number in the extra field of ZIP64.
constexpr std::uint64_t kInExtra = 0xffffffff;
constexpr std::uint64_t kZip64Extra = 1;

std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

/// Empty if it is not within the archive.
std::string read(const InputFile& archive, std::uint64_t begin, std::uint64_t length) {
  if (begin > archive.size() || length > archive.size() - begin || length > kLargestDirectory) return {};
  std::string bytes(length, '\0');
  archive.read_at(begin, bytes.data(), bytes.size());
  return bytes;
}

/// The central directory; empty if there is none.
std::string read_directory(const InputFile& archive) {
  const std::uint64_t tail = std::min(archive.size(), kEndSize + kLongestComment + kEnd64LocatorSize);
  const std::string end = read(archive, archive.size() - tail, tail);
  const auto at = end.rfind("PK\x05\x06");
  if (at == std::string::npos || at + kEndSize > end.size()) return {};
  std::uint64_t length = number(end, at + 12, 4), begin = number(end, at + 16, 4);
  if ((length == kInExtra || begin == kInExtra) && at >= kEnd64LocatorSize) {
    const std::string end64 = read(archive, number(end, at - kEnd64LocatorSize + 8, 8), kEnd64Size);
    if (!end64.starts_with("PK\x06\x06")) return {};
    length = number(end64, 40, 8);
    begin = number(end64, 48, 8);
  }
  return read(archive, begin, length);
}

/// The content of an entry's ZIP64 field; empty if there is none.
std::string_view find_zip64(std::string_view extra) {
  while (extra.size() >= 4) {
    const auto size = number(extra, 2, 2);
    if (size > extra.size() - 4) return {};
    if (number(extra, 0, 2) == kZip64Extra) return extra.substr(4, size);
    extra.remove_prefix(4 + size);
  }
  return {};
}

/// The numbers of an entry that do not fit into its fields follow each other in the ZIP64 field, in this
/// order.
bool read_zip64(std::string_view extra, ZipEntry& entry) {
  auto field = find_zip64(extra);
  for (auto* value : {&entry.bytes, &entry.packed_bytes, &entry.header}) {
    if (*value != kInExtra) continue;
    if (field.size() < 8) return false;
    *value = number(field, 0, 8);
    field.remove_prefix(8);
  }
  return true;
}

/// Takes the first entry off the directory; nothing if it is damaged.
std::optional<ZipEntry> take_entry(std::string_view& directory) {
  if (directory.size() < kEntrySize || !directory.starts_with("PK\x01\x02")) return std::nullopt;
  const auto name = number(directory, 28, 2), extra = number(directory, 30, 2),
             comment = number(directory, 32, 2);
  if (kEntrySize + name + extra + comment > directory.size()) return std::nullopt;
  ZipEntry entry{.name = std::string(directory.substr(kEntrySize, name)),
                 .is_encrypted = (number(directory, 8, 2) & 1U) != 0,
                 .method = static_cast<unsigned>(number(directory, 10, 2)),
                 .crc32 = static_cast<std::uint32_t>(number(directory, 16, 4)),
                 .packed_bytes = number(directory, 20, 4),
                 .bytes = number(directory, 24, 4),
                 .header = number(directory, 42, 4)};
  if (!read_zip64(directory.substr(kEntrySize + name, extra), entry)) return std::nullopt;
  directory.remove_prefix(kEntrySize + name + extra + comment);
  return entry;
}

}  // namespace

std::vector<ZipEntry> zip_directory(const InputFile& archive) {
  const std::string directory = read_directory(archive);
  std::vector<ZipEntry> entries;
  // A digital signature may follow the entries.
  for (std::string_view rest = directory; !rest.empty() && !rest.starts_with("PK\x05\x05");) {
    auto entry = take_entry(rest);
    if (!entry) return {};
    entries.push_back(std::move(*entry));
  }
  return entries;
}

std::optional<std::uint64_t> find_zip_data(const InputFile& archive, const ZipEntry& entry) {
  const std::string header = read(archive, entry.header, kHeaderSize);
  if (!header.starts_with("PK\x03\x04")) return std::nullopt;
  // Within 2^17 of a position in the file: no overflow.
  const auto begin = entry.header + kHeaderSize + number(header, 26, 2) + number(header, 28, 2);
  if (begin > archive.size() || entry.packed_bytes > archive.size() - begin) return std::nullopt;
  return begin;
}

}  // namespace lockstep
