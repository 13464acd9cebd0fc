#include "checkpoint/zip_archive.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"

namespace lockstep {

ZipArchive::ZipArchive(std::filesystem::path path)
    : path_(std::move(path)), file_(path_), records_(zip_directory(file_)) {}

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
  if (record.method != 0 || record.bytes != record.packed_bytes) {
    throw DataError(fmt::format("'{}': the record '{}' is compressed, which torch.save does not do.",
                                path_.string(), record.name));
  }
  if (const auto begin = find_zip_data(file_, record)) return *begin;
  throw DataError(
      fmt::format("'{}': the record '{}' of {} bytes is not within the file's {} bytes: it is damaged.",
                  path_.string(), record.name, record.bytes, file_.size()));
}

}  // namespace lockstep
