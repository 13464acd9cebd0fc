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

/// XXH3 with 128 bits (libxxhash), incremental: the only hash used for contents and keys. It distinguishes
/// contents; it is not cryptographic. *Local*.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void update(const void* data, std::size_t bytes) noexcept;
  void update(std::string_view text) noexcept { update(text.data(), text.size()); }
  /// Adds the length too, so that adjacent fields cannot be confused.
  void update_field(std::string_view text) noexcept;
  void update_number(std::uint64_t number) noexcept { update(&number, sizeof number); }

  /// The hash of everything so far, as 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The hash of these bytes alone.
std::string content_hash(std::string_view bytes);

}  // namespace lockstep::table

namespace lockstep {

/// When the hash of a file is stored.
struct HashMemoryOptions {
  /// Smaller files are always read: that costs no more than looking up a hash.
  std::size_t least_bytes = std::size_t{16} << 20;
  /// How long a file must have been unmodified. A mapped page gets a new time stamp only once between two
  /// write-backs by the kernel, by default 30 s apart; the clocks of file systems tick every few
  /// milliseconds, or every 2 s.
  std::chrono::nanoseconds settled{std::chrono::seconds(60)};
};

/// Stores the hashes of large files below a cache folder, so that an unmodified file is read once:
/// `<cache>/hashes/<name>` has the size, mtime and ctime (in nanoseconds), device and inode that the file
/// had. Programs can set a file's mtime back, but not its ctime. Files in memory (tmpfs) are always read,
/// because writing through a mapping leaves no time stamp. Errors in the folder are ignored: the file is
/// read. *Local*; several threads and processes may share a folder.
class HashMemory {
 public:
  /// Without a folder, nothing is stored.
  explicit HashMemory(std::filesystem::path cache, HashMemoryOptions options = {});

  /// The content hash of all bytes of a file. Throws DataError, with the file's name, if it cannot be read.
  std::string of(const arrow_file::MappedFile& file) const;
  std::string of(const std::filesystem::path& path) const;
  /// The hash of the names and bytes of all files below a folder.
  std::string of_folder(const std::filesystem::path& folder) const;

 private:
  std::filesystem::path folder_;
  HashMemoryOptions options_;
};

/// A memory in the default cache folder, if the environment determines one.
HashMemory default_hash_memory();

}  // namespace lockstep
