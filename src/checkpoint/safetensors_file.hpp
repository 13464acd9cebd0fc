#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/safetensors_header.hpp"
#include "core/input_file.hpp"

namespace lockstep::safetensors {

/// A safetensors file whose tensors are read as raw bytes, in any order. Independent of LibTorch. Throws
/// DataError for an invalid file, as parse_header does. *Local*; one thread at a time.
class File {
 public:
  explicit File(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  const Header& header() const noexcept { return header_; }

  /// Reads `bytes` bytes of a tensor, from its byte `offset`.
  void read(const Entry& entry, std::uint64_t offset, void* data, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  InputFile file_;
  Header header_;
  std::uint64_t data_begin_ = 0;
};

/// Reads the header of a file that is positioned at its first byte; `name` is used in messages.
Header read_header(InputFile& file, const std::string& name);

}  // namespace lockstep::safetensors
