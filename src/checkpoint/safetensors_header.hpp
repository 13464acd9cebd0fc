#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::safetensors {

// The header of a safetensors file. Independent of LibTorch, so that it can be fuzzed separately.
//
// A file consists of the header's length (8 bytes, little-endian), the header (JSON), and the tensors' bytes
// one after another.

/// Maximum length of a header that is read or written, in bytes: the limit of the reference implementation.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;
/// Maximum number of dimensions of a tensor: the limit of LibTorch's kernels.
inline constexpr std::size_t kMostDimensions = 64;

/// One tensor: its dtype by the format's name ("F32"), and its bytes [begin, end) after the header.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  /// In the order of their bytes.
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses and checks `json`, the header of `file`, which is followed by `data_bytes` bytes. Throws DataError,
/// with the file, the tensor and the numbers, unless it is UTF-8 JSON of exactly the format's structure
/// without duplicate keys, every dtype is known, the sizes do not overflow and match the offsets, and the
/// offsets cover the data bytes without gaps or overlaps. Memory use is proportional to the size of `json`.
Header parse_header(std::string_view json, std::uint64_t data_bytes, const std::string& file);

/// Checks the first 8 bytes against the file's size, and returns the header's length. Throws DataError.
std::uint64_t checked_header_length(std::string_view first_bytes, std::uint64_t file_bytes,
                                    const std::string& file);

/// Sorts the entries into the order of the reference implementation (dtype, then name), sets their offsets,
/// and returns the file's bytes up to those of the first tensor. `begin` and `end` of the given entries are
/// ignored. Throws UsageError if a name is not UTF-8, reserved or duplicate, for metadata that is not UTF-8,
/// an unknown dtype, too many dimensions, or a header that would be longer than kLongestHeader.
std::string make_header(Header& header);

}  // namespace lockstep::safetensors
