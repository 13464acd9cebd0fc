#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/dtypes.hpp"
#include "checkpoint/safetensors_header.hpp"
#include "lockstep/core/error.hpp"

namespace {

using lockstep::safetensors::Header;

void require(bool holds) {
  if (!holds) std::abort();
}

/// What every accepted header promises to the reader behind it.
void check_promises(const Header& header, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const auto& entry : header.entries) {
    require(lockstep::safetensors::find_dtype(entry.dtype) != nullptr);
    require(entry.begin == covered && entry.end >= entry.begin);
    require(entry.shape.size() <= lockstep::safetensors::kMostDimensions);
    for (const auto size : entry.shape) require(size >= 0);
    covered = entry.end;
  }
  require(covered == data_bytes);
}

/// What was read can be written, and reads as the same again.
void check_round_trip(Header header, std::uint64_t data_bytes) {
  const auto written = lockstep::safetensors::make_header(header);
  const auto again =
      lockstep::safetensors::parse_header(std::string_view(written).substr(8), data_bytes, "again");
  require(again.entries.size() == header.entries.size() && again.metadata == header.metadata);
}

}  // namespace

/// The input: one byte of data size, then a file's first bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint64_t data_bytes = data[0];
  const std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    lockstep::safetensors::checked_header_length(rest, rest.size(), "fuzz");
  } catch (const lockstep::DataError&) {
  }
  try {
    const auto header = lockstep::safetensors::parse_header(rest, data_bytes, "fuzz");
    check_promises(header, data_bytes);
    check_round_trip(header, data_bytes);
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
