#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/input_file.hpp"
#include "core/zip_directory.hpp"

namespace lockstep {

/// One file inside of an archive.
using ZipRecord = ZipEntry;

/// A zip archive as torch.save writes it; it need not be trusted. *Local*; one thread at a time.
class ZipArchive {
 public:
  /// Reads the directory at the archive's end. Throws DataError if the file cannot be read; a file that is no
  /// archive, or a damaged one, has no records.
  explicit ZipArchive(std::filesystem::path path);

  const std::vector<ZipRecord>& records() const noexcept { return records_; }
  std::vector<std::string> names() const;
  /// Null if there is none; the last of several, as in Python.
  const ZipRecord* find(const std::string& name) const noexcept;

  /// Where the bytes of a record begin in the file. Throws DataError, with the file and the record, if it is
  /// compressed, or not within the file.
  std::uint64_t find_data(const ZipRecord& record) const;
  const InputFile& file() const noexcept { return file_; }

 private:
  std::filesystem::path path_;
  InputFile file_;
  std::vector<ZipRecord> records_;
};

}  // namespace lockstep
