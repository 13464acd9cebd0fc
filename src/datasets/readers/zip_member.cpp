#include "datasets/readers/zip_member.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "core/input_file.hpp"
#include "core/utf8_check.hpp"
#include "core/zip_directory.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::readers {
namespace {

[[noreturn]] void refuse_archive(const std::filesystem::path& archive, const std::string& why) {
  throw DataError(fmt::format("'{}' {}.", archive.string(), why));
}

bool counts(const ZipEntry& entry) {
  const std::string_view name = entry.name;
  const auto base = name.substr(name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1);
  return !base.empty() && base.front() != '.' && !name.starts_with("__MACOSX/");
}

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    auto rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? 0xEDB88320U : 0U);
    table[byte] = rest;
  }
  return table;
}

}  // namespace

ZipMember only_member(const std::filesystem::path& archive) {
  const InputFile bytes(archive);
  std::vector<ZipEntry> files;
  std::vector<std::string> names;
  for (auto& entry : zip_directory(bytes)) {
    if (!counts(entry)) continue;
    if (names.size() < 5) names.push_back(utf8_text(entry.name));
    files.push_back(std::move(entry));
  }
  if (files.empty()) refuse_archive(archive, "is not a whole ZIP archive with a file in it");
  if (files.size() > 1) {
    refuse_archive(archive,
                   fmt::format("holds {} files ('{}'{}), and only an archive of one file is read. Unpack "
                               "it (unzip) and name the files that you want",
                               files.size(), fmt::join(names, "', '"), files.size() > 5 ? ", ..." : ""));
  }
  const auto& file = files.front();
  if (file.is_encrypted) refuse_archive(archive, "is encrypted. Unpack it with its password (unzip)");
  if (file.method != 0 && file.method != 8)
    refuse_archive(
        archive,
        fmt::format("is compressed by a method that is not read ({}). Unpack it (unzip, 7z)", file.method));
  const auto begin = find_zip_data(bytes, file);
  if (!begin) refuse_archive(archive, "is damaged: its file lies outside of it");
  return {file.name, file.method == 8, *begin, file.packed_bytes, file.bytes, file.crc32};
}

std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before) noexcept {
  static constexpr auto kTable = crc_table();
  auto rest = ~before;
  for (const char byte : bytes)
    rest = (rest >> 8U) ^ kTable[(rest ^ static_cast<unsigned char>(byte)) & 0xFFU];
  return ~rest;
}

}  // namespace lockstep::readers
