#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/input_file.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::readers {

/// Whether the name has the extension of a compressed file: ".gz", ".bz2", ".zst", ".lz4", ".zip", or that of
/// a compressed tar file (".tgz", ".tbz2", ".tzst"), in any case. Throws DataError, saying how to unpack it,
/// for those that are not read (".xz", ".lzma", ".7z", ".rar", ".br").
bool is_packed(const std::filesystem::path& path);

/// The name without that extension ("a.csv" of "a.csv.gz", "a.tar" of "a.tgz"); of a ZIP archive, the name of
/// the file in it. Throws DataError if that is not one file.
std::filesystem::path unpacked_name(const std::filesystem::path& path);

/// The extension of the compression that the first bytes of a file show (".gz"); empty if they show none.
std::string packing_of_content(std::string_view bytes);

/// Reads a file sequentially, decompressed if it is compressed. One thread at a time. Throws DataError with
/// the file's name.
class PackedFile {
 public:
  /// `by_content`: a file whose name says nothing may be compressed all the same.
  explicit PackedFile(const std::filesystem::path& path, bool by_content = false);
  ~PackedFile();

  /// Fills `first` and then `second`, as far as one system call does; `second` gets bytes only if `first` is
  /// full. Returns the number of bytes; 0 at the end.
  std::size_t read(std::span<char> first, std::span<char> second = {});

  /// Skips bytes; in an uncompressed file they are not read. False if the file ends before.
  bool skip(std::uint64_t bytes);

  /// The number of bytes left; null if the file is compressed.
  std::optional<std::uint64_t> left() const;

 private:
  struct Unpacker;
  void open(const std::string& packing);
  std::size_t unpack(std::span<char> to);
  [[noreturn]] void fail(const std::string& why) const;

  std::filesystem::path path_;
  InputFile file_;
  std::unique_ptr<Unpacker> unpacker_;
  std::uint64_t offset_ = 0;
};

/// A plain file itself, or the content of a compressed one in an unnamed file in TMPDIR, which exists as long
/// as this object.
class UnpackedFile {
 public:
  /// Throws DataError for the file, Error if TMPDIR cannot be written. With `keep_lines`, the whole lines
  /// before a damage are kept, and the DataError is damage().
  explicit UnpackedFile(std::filesystem::path path, bool keep_lines = false);

  const std::filesystem::path& path() const noexcept { return path_; }
  const std::exception_ptr& damage() const noexcept { return damage_; }

 private:
  /// Unpacks what is between `begin` and the damage; returns how many bytes it is.
  std::uint64_t unpack_rest(std::uint64_t begin) const;
  /// The offset behind the last whole line; 0 if there is none.
  std::uint64_t whole_lines(std::uint64_t bytes) const;

  net::FileDescriptor file_;
  std::filesystem::path path_;
  std::exception_ptr damage_;
};

}  // namespace lockstep::readers
