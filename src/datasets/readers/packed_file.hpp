#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "lockstep/core/input_file.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::readers {

/// Whether the name has the extension of a compressed file: ".gz" or ".zst".
bool is_packed(const std::filesystem::path& path);

/// Reads a file sequentially, decompressed if it is compressed. One thread at a time. Throws DataError with
/// the file's name.
class PackedFile {
 public:
  explicit PackedFile(const std::filesystem::path& path);
  ~PackedFile();

  /// Fills `first` and then `second`, as far as one system call does; `second` gets bytes only if `first` is
  /// full. Returns the number of bytes; 0 at the end.
  std::size_t read(std::span<char> first, std::span<char> second = {});

  /// Skips bytes. In an uncompressed file they are not read, and may be beyond its end.
  void skip(std::uint64_t bytes);

  /// The number of bytes left; null if the file is compressed.
  std::optional<std::uint64_t> left() const;

 private:
  struct Unpacker;
  std::size_t unpack(std::span<char> to);
  [[noreturn]] void fail(const std::string& why) const;

  std::filesystem::path path_;
  InputFile file_;
  std::unique_ptr<Unpacker> unpacker_;
  std::uint64_t place_ = 0;
};

/// A plain file itself, or the content of a compressed one in an unnamed file in TMPDIR, which exists as long
/// as this object.
class UnpackedFile {
 public:
  /// Throws DataError for the file, Error if TMPDIR cannot be written.
  explicit UnpackedFile(std::filesystem::path path);

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  net::FileDescriptor file_;
  std::filesystem::path path_;
};

}  // namespace lockstep::readers
