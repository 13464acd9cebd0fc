#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::safetensors {

// The header of a safetensors file. Knows nothing of LibTorch, so that it can be fuzzed on its own.
//
// A file is: the header's length (8 bytes, little-endian), the header (JSON), the tensors' bytes one after
// another.

/// The longest header that is read or written, in bytes: the limit of the format's reference implementation.
inline constexpr std::uint64_t kLongestHeader = 100'000'000;
/// The most dimensions of a tensor: what LibTorch's kernels take.
inline constexpr std::size_t kMostDimensions = 64;

/// One tensor's place: its dtype by the format's name ("F32"), and its bytes [begin, end) behind the header.
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

/// The bytes of one element, or 0 for a dtype that is not known. `rank` orders the dtypes in a file that is
/// written.
struct Dtype {
  std::string_view name;
  std::uint64_t bytes;
  int rank;
};

/// The dtype of that name, or nullptr.
const Dtype* find_dtype(std::string_view name) noexcept;

/// Reads and checks `json`, the header of `file`, behind which `data_bytes` bytes follow. Throws DataError,
/// naming the file, the tensor and the numbers, unless: it is UTF-8 JSON of exactly the format's shape
/// without a duplicate key; every dtype is known; the sizes do not overflow and fit the offsets; and the
/// offsets cover the data bytes without a hole or an overlap. Allocates in proportion to `json` only.
Header parse_header(std::string_view json, std::uint64_t data_bytes, const std::string& file);

/// Checks the first 8 bytes against the file's size (itself 8 or more) and gives the header's length. Throws
/// DataError.
std::uint64_t checked_header_length(std::string_view first_bytes, std::uint64_t file_bytes,
                                    const std::string& file);

/// Puts the entries into the order of the format's reference implementation (dtype, then name), gives them
/// offsets, and returns the file's bytes up to the first tensor's. `begin` and `end` of the given entries are
/// ignored and set. Throws UsageError for a name that is no UTF-8, is reserved or is given twice, for
/// metadata that is no UTF-8, an unknown dtype, too many dimensions, or a header that would be longer than
/// kLongestHeader.
std::string make_header(Header& header);

}  // namespace lockstep::safetensors
