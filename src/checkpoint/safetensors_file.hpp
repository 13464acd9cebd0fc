#pragma once

#include <filesystem>
#include <string>

#include "lockstep/core/input_file.hpp"
#include "safetensors_header.hpp"

namespace lockstep::safetensors {

/// A safetensors file whose tensors are read as plain bytes, in any order. Knows nothing of LibTorch. Throws
/// DataError for a file that breaks the format, as parse_header does. *Local*; one thread at a time.
class File {
 public:
  explicit File(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  const Header& header() const noexcept { return header_; }

  /// `bytes` bytes of a tensor, from its byte `offset` on.
  void read(const Entry& entry, std::uint64_t offset, void* data, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  InputFile file_;
  Header header_;
  std::uint64_t data_begin_ = 0;
};

/// Reads the header of a file whose first byte comes next; `name` is the file's in messages.
Header read_header(InputFile& file, const std::string& name);

}  // namespace lockstep::safetensors
