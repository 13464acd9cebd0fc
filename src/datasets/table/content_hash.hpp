#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "datasets/arrow/mapped_file.hpp"

namespace lockstep::table {

/// XXH3 with 128 bits (libxxhash), piece by piece: the one hash of contents and of keys made of them. For
/// telling contents apart; no protection against somebody who means harm. *Local*.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void update(const void* data, std::size_t bytes) noexcept;
  void update(std::string_view text) noexcept { update(text.data(), text.size()); }
  /// With its length, so that neighbours cannot be mixed up.
  void update_field(std::string_view text) noexcept;
  void update_number(std::uint64_t number) noexcept { update(&number, sizeof number); }

  /// Of everything so far, as 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of these bytes alone.
std::string content_hash(std::string_view bytes);

}  // namespace lockstep::table

namespace lockstep {

/// When the hash of a file is remembered.
struct HashMemoryOptions {
  /// Below that, reading the file costs no more than asking.
  std::size_t least_bytes = std::size_t{16} << 20;
  /// How long a file must have been left alone. A page of a file that somebody has mapped gets a new time
  /// stamp only once between two times that the kernel writes it back, 30 s apart by default; the clocks of
  /// file systems tick every few milliseconds, or every 2 s.
  std::chrono::nanoseconds settled{std::chrono::seconds(60)};
};

/// The hashes of large files, kept below a cache folder, so that a file that nobody has touched is read once:
/// `<cache>/hashes/<name>` says the size, the times of change (mtime and ctime, in nanoseconds), device and
/// inode that the file had. Programs can set a file's mtime back, but not its ctime. Files in memory (tmpfs)
/// are read always: writing them through a mapping leaves no time stamp. Whatever is wrong with the folder is
/// no error: the file is read. *Local*; several threads and processes may share a folder.
class HashMemory {
 public:
  /// Without a folder nothing is remembered.
  explicit HashMemory(std::filesystem::path cache, HashMemoryOptions options = {});

  /// The content hash of all bytes of a file. Throws DataError, naming the file, when it cannot be read.
  std::string of(const arrow_file::MappedFile& file) const;
  std::string of(const std::filesystem::path& path) const;
  /// Of the names and bytes of all files below a folder.
  std::string of_folder(const std::filesystem::path& folder) const;

 private:
  std::filesystem::path folder_;
  HashMemoryOptions options_;
};

/// In the default cache folder, where the environment names one.
HashMemory default_hash_memory();

}  // namespace lockstep
