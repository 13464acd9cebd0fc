#include "checkpoint/zip_archive.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// Sizes of the archive's parts without their variable ends, and the longest comment at its end.
constexpr std::uint64_t kEndSize = 22, kEnd64LocatorSize = 20, kEnd64Size = 56, kEntrySize = 46,
                        kHeaderSize = 30, kLongestComment = 65535;
/// Maximum size of a directory.
constexpr std::uint64_t kLargestDirectory = 256 << 20;
/// A field of 32 bits with this value has its number in the extra field of zip64.
constexpr std::uint64_t kInExtra = 0xffffffff;
constexpr std::uint64_t kZip64Extra = 1;

std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

/// The content of an entry's zip64 field; empty if there is none.
std::string_view find_zip64(std::string_view extra) {
  while (extra.size() >= 4) {
    const auto size = number(extra, 2, 2);
    if (size > extra.size() - 4) return {};
    if (number(extra, 0, 2) == kZip64Extra) return extra.substr(4, size);
    extra.remove_prefix(4 + size);
  }
  return {};
}

/// The numbers of an entry that do not fit into its fields follow each other in the zip64 field, in this
/// order.
bool read_zip64(std::string_view extra, ZipRecord& record) {
  auto field = find_zip64(extra);
  for (auto* value : {&record.bytes, &record.stored_bytes, &record.header_begin}) {
    if (*value != kInExtra) continue;
    if (field.size() < 8) return false;
    *value = number(field, 0, 8);
    field.remove_prefix(8);
  }
  return true;
}

/// Takes the first entry off the directory; nothing if it is damaged.
std::optional<ZipRecord> take_entry(std::string_view& directory) {
  if (directory.size() < kEntrySize || !directory.starts_with("PK\x01\x02")) return std::nullopt;
  const auto name = number(directory, 28, 2), extra = number(directory, 30, 2),
             comment = number(directory, 32, 2);
  if (kEntrySize + name + extra + comment > directory.size()) return std::nullopt;
  ZipRecord record{.name = std::string(directory.substr(kEntrySize, name)),
                   .stored_bytes = number(directory, 20, 4),
                   .bytes = number(directory, 24, 4),
                   .header_begin = number(directory, 42, 4),
                   .is_compressed = number(directory, 10, 2) != 0};
  if (!read_zip64(directory.substr(kEntrySize + name, extra), record)) return std::nullopt;
  directory.remove_prefix(kEntrySize + name + extra + comment);
  return record;
}

}  // namespace

ZipArchive::ZipArchive(std::filesystem::path path) : path_(std::move(path)), file_(path_) {
  const std::string directory = read_directory();
  for (std::string_view rest = directory; !rest.empty();) {
    auto record = take_entry(rest);
    if (!record) {
      records_.clear();
      return;
    }
    records_.push_back(std::move(*record));
  }
}

std::vector<std::string> ZipArchive::names() const {
  std::vector<std::string> names;
  for (const auto& record : records_) names.push_back(record.name);
  return names;
}

const ZipRecord* ZipArchive::find(const std::string& name) const noexcept {
  const auto found = std::find_if(records_.rbegin(), records_.rend(),
                                  [&](const ZipRecord& record) { return record.name == name; });
  return found == records_.rend() ? nullptr : &*found;
}

std::uint64_t ZipArchive::find_data(const ZipRecord& record) const {
  if (record.is_compressed || record.bytes != record.stored_bytes) {
    throw DataError(fmt::format("'{}': the record '{}' is compressed, which torch.save does not do.",
                                path_.string(), record.name));
  }
  const std::string header = read(record.header_begin, kHeaderSize);
  if (header.starts_with("PK\x03\x04")) {
    // Within 2^17 of a position in the file: no overflow.
    const auto begin = record.header_begin + kHeaderSize + number(header, 26, 2) + number(header, 28, 2);
    if (begin <= file_.size() && record.bytes <= file_.size() - begin) return begin;
  }
  throw DataError(
      fmt::format("'{}': the record '{}' of {} bytes is not within the file's {} bytes: it is damaged.",
                  path_.string(), record.name, record.bytes, file_.size()));
}

std::string ZipArchive::read(std::uint64_t begin, std::uint64_t length) const {
  if (begin > file_.size() || length > file_.size() - begin || length > kLargestDirectory) return {};
  std::string bytes(length, '\0');
  file_.read_at(begin, bytes.data(), bytes.size());
  return bytes;
}

std::string ZipArchive::read_directory() const {
  const std::uint64_t tail = std::min(file_.size(), kEndSize + kLongestComment + kEnd64LocatorSize);
  const std::string end = read(file_.size() - tail, tail);
  const auto at = end.rfind("PK\x05\x06");
  if (at == std::string::npos || at + kEndSize > end.size()) return {};
  std::uint64_t length = number(end, at + 12, 4), begin = number(end, at + 16, 4);
  if ((length == kInExtra || begin == kInExtra) && at >= kEnd64LocatorSize) {
    const std::string end64 = read(number(end, at - kEnd64LocatorSize + 8, 8), kEnd64Size);
    if (!end64.starts_with("PK\x06\x06")) return {};
    length = number(end64, 40, 8);
    begin = number(end64, 48, 8);
  }
  return read(begin, length);
}

}  // namespace lockstep
