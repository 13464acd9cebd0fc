#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/core/input_file.hpp"

namespace lockstep {

/// One file inside of an archive.
struct ZipRecord {
  std::string name;
  /// Bytes as stored, and as they are after unpacking: equal if the record is not compressed.
  std::uint64_t stored_bytes = 0;
  std::uint64_t bytes = 0;
  /// Where its own header begins in the archive.
  std::uint64_t header_begin = 0;
  bool is_compressed = false;
};

/// The directory of a zip archive, as torch.save writes it, with the fields of zip64; the archive need not be
/// trusted. *Local*; one thread at a time.
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
  std::string read(std::uint64_t begin, std::uint64_t length) const;
  std::string read_directory() const;

  std::filesystem::path path_;
  InputFile file_;
  std::vector<ZipRecord> records_;
};

}  // namespace lockstep
