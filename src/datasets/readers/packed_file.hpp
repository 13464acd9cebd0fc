#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "net/file_descriptor.hpp"

namespace lockstep::readers {

/// Whether the name says that the bytes are compressed: ".gz" and ".zst".
bool is_packed(const std::filesystem::path& path);

/// The bytes of a file from its beginning to its end, unpacked where the file is compressed. One thread at a
/// time. Throws DataError, naming the file.
class PackedFile {
 public:
  explicit PackedFile(const std::filesystem::path& path);
  ~PackedFile();

  /// Fills `first`, and then `second`, as far as one call to the system does; `second` gets bytes only where
  /// `first` is full. Returns the number of bytes; 0 at the end.
  std::size_t read(std::span<char> first, std::span<char> second = {});

  /// Passes over bytes. Where the file is not compressed they are not read, and may lie behind its end.
  void skip(std::uint64_t bytes);

  /// The bytes that are left; nothing where the file is compressed.
  std::optional<std::uint64_t> left() const;

 private:
  struct Unpacker;
  std::size_t unpack(std::span<char> to);
  [[noreturn]] void fail(const std::string& why) const;

  std::filesystem::path path_;
  net::FileDescriptor file_;
  std::unique_ptr<Unpacker> unpacker_;
  std::uint64_t size_ = 0;
  std::uint64_t place_ = 0;
};

/// A file as it is, or the bytes of a compressed one in a nameless file in TMPDIR, which goes with this
/// object.
class UnpackedFile {
 public:
  /// Throws DataError for the file, Error where TMPDIR cannot be written.
  explicit UnpackedFile(std::filesystem::path path);

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  net::FileDescriptor file_;
  std::filesystem::path path_;
};

}  // namespace lockstep::readers
