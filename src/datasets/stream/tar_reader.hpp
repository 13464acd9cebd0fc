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
  std::string name;
  /// Of its bytes.
  std::uint64_t size = 0;
  /// Whether it is a file with bytes; else a folder, a link, a device.
  bool is_file = false;
};

/// Reads the members of a tar file in their order: ustar, pax, and GNU's long names and sizes; gzip and zstd
/// around them by the file's name. What comes behind the mark of the end is not looked at. One thread at a
/// time.
///
/// Throws DataError, naming the file and the member, for whatever does not fit: a header whose checksum is
/// wrong, a size that the file has not, a name that leaves the folder, sparse members, an end in the middle
/// or without the mark. Memory is asked for as bytes come, not as a header claims.
class TarReader {
 public:
  explicit TarReader(const std::filesystem::path& path);

  /// The next member, after passing over what is left of the one before; nothing at the archive's end.
  std::optional<TarMember> next();

  /// The bytes of the member that next() gave last; once.
  std::string read();

  /// Throws DataError: "'x.tar', member 'a.jpg': WHAT."
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Header;
  /// What an extended header says about the member behind it.
  struct Extension {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
  };

  bool read_header(Header& header);
  /// Takes the header as one about another member; false where it is a member's own.
  bool take_extension(const Header& header, Extension& extension);
  void take_records(std::string_view records, Extension& extension);
  TarMember member_of(const Header& header, Extension extension);
  void check_name(const std::string& name) const;
  std::string read_text(std::uint64_t size);
  /// False where the file has ended before the first byte; an error where it ends later.
  bool fill(char* to, std::size_t bytes);
  void skip(std::uint64_t bytes);

  std::filesystem::path path_;
  readers::PackedFile file_;
  std::string member_;
  /// Of the present member: its bytes that were not read, and those up to the next header.
  std::uint64_t left_ = 0;
  std::uint64_t padding_ = 0;
  /// Bytes read ahead: those from begin_ to end_.
  std::vector<char> ahead_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace lockstep::stream
