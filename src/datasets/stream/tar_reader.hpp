#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/readers/packed_file.hpp"

namespace lockstep::stream {

/// A member of a tar file.
struct TarMember {
  /// As text: see utf8_text().
  std::string name;
  /// Size of its content in bytes.
  std::uint64_t size = 0;
  /// Whether it is a regular file; otherwise a folder, link or device.
  bool is_file = false;
};

/// Reads the members of a tar file in order: ustar, pax, and GNU's long names and sizes, compressed if the
/// file's name or its first bytes say so. Bytes after the end-of-archive mark are ignored; a file that ends
/// between two members without one is complete, with a warning. One thread at a time.
///
/// Throws DataError, with the file and the member, for anything invalid: a wrong header checksum, a size that
/// exceeds the file, a name with "..", sparse members, a file that is truncated. Memory is allocated as bytes
/// are read, not as a header claims.
class TarReader {
 public:
  explicit TarReader(const std::filesystem::path& path);

  /// The next member, after skipping the rest of the current one; null at the end of the archive.
  std::optional<TarMember> next();

  /// The content of the member that next() returned last; call it once.
  std::string read();

  /// Throws DataError: "'x.tar', member 'a.jpg': WHAT."
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Header;
  /// What an extended header says about the next member.
  struct Extension {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
  };

  bool read_header(Header& header);
  /// Parses the header if it is about another member; false if it is a member's own.
  bool take_extension(const Header& header, Extension& extension);
  void take_records(std::string_view records, Extension& extension);
  TarMember member_of(const Header& header, Extension extension);
  void check_name(const std::string& name) const;
  std::string read_text(std::uint64_t size);
  /// False if the file ends before the first byte; an error if it ends later.
  bool fill(char* to, std::size_t bytes);
  /// False if the file ends before.
  bool skip(std::uint64_t bytes);

  std::filesystem::path path_;
  readers::PackedFile file_;
  std::string member_;
  /// Of the current member: bytes of content not yet read, and bytes of padding after them.
  std::uint64_t left_ = 0;
  std::uint64_t padding_ = 0;
  /// Bytes read ahead, from begin_ to end_.
  std::vector<char> ahead_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace lockstep::stream
