#include "checkpoint/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "checkpoint/dtypes.hpp"
#include "checkpoint/safetensors_json.hpp"
#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::safetensors {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
/// A malicious file may contain names of many megabytes, which must not be logged.
constexpr std::size_t kNameShown = 200;

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("'{}' is not a valid safetensors file: {}.", file, what));
}

std::string describe_entry(const Entry& entry) {
  return fmt::format("tensor '{}' ({}, shape [{}], data_offsets [{}, {}])", entry.name.substr(0, kNameShown),
                     entry.dtype, fmt::join(entry.shape, ", "), entry.begin, entry.end);
}

/// The number of bytes of the dtype and shape; false if a product exceeds 2^63 - 1. Dimensions of 0 are left
/// out of the product, because LibTorch computes strides from the other dimensions even for empty tensors.
bool find_bytes(const Entry& entry, std::uint64_t element, std::uint64_t& bytes) {
  auto product = static_cast<std::int64_t>(element);
  bool empty = false;
  for (const auto size : entry.shape) {
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return false;
  }
  bytes = empty ? 0 : static_cast<std::uint64_t>(product);
  return true;
}

void check_entry(const Entry& entry, std::uint64_t data_bytes, const std::string& file) {
  const auto* dtype = find_dtype(entry.dtype);
  if (dtype == nullptr) fail(file, describe_entry(entry) + " has a dtype that is not known");
  if (entry.begin > entry.end || entry.end > data_bytes) {
    fail(file, fmt::format("{} is outside of the file's {} data bytes", describe_entry(entry), data_bytes));
  }
  std::uint64_t bytes = 0;
  if (!find_bytes(entry, dtype->bytes, bytes))
    fail(file, describe_entry(entry) + " has more than 2^63 - 1 bytes");
  if (bytes != entry.end - entry.begin) {
    fail(file, fmt::format("{} needs {} bytes, but its offsets span {}", describe_entry(entry), bytes,
                           entry.end - entry.begin));
  }
}

void check_cover(const std::vector<Entry>& entries, std::uint64_t data_bytes, const std::string& file) {
  std::uint64_t covered = 0;
  for (const auto& entry : entries) {
    if (entry.begin != covered) {
      fail(file, fmt::format("{} should begin at byte {}{}", describe_entry(entry), covered,
                             entry.begin > covered ? ": there is a hole before it"
                                                   : ": it overlaps the one before it"));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    fail(file, fmt::format("its tensors end at data byte {}, but it has {} data bytes", covered, data_bytes));
  }
}

void check_text(std::string_view text, const char* what) {
  if (first_not_utf8(text) == std::string_view::npos) return;
  throw UsageError(
      fmt::format("cannot write a safetensors file: the {} '{}' is not valid UTF-8.", what, text));
}

/// Sets the entry's range of the data, which begins at `offset`, and moves `offset` to its end.
void assign_range(Entry& entry, std::uint64_t& offset) {
  const auto* dtype = find_dtype(entry.dtype);
  std::uint64_t bytes = 0;
  check_text(entry.name, "tensor name");
  if (entry.name == "__metadata__") {
    throw UsageError("cannot write a safetensors file: the format reserves the name '__metadata__'.");
  }
  if (dtype == nullptr || entry.shape.size() > kMostDimensions || !find_bytes(entry, dtype->bytes, bytes)) {
    throw UsageError(
        fmt::format("cannot write a safetensors file: {} has a dtype that the format does not know, more "
                    "than {} dimensions, or more than 2^63 - 1 bytes.",
                    describe_entry(entry), kMostDimensions));
  }
  entry.begin = offset;
  offset += bytes;
  entry.end = offset;
}

void sort_as_reference(std::vector<Entry>& entries) {
  const auto key = [](const Entry& entry) {
    const auto* dtype = find_dtype(entry.dtype);
    return std::tuple(dtype == nullptr ? -1 : dtype->order(), std::string_view(entry.name));
  };
  std::sort(entries.begin(), entries.end(),
            [&key](const auto& left, const auto& right) { return key(left) < key(right); });
}

void check_unique(const std::vector<Entry>& entries) {
  std::vector<std::string_view> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return;
  throw UsageError(fmt::format("cannot write a safetensors file: the name '{}' is given twice.", *twice));
}

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

}  // namespace

std::uint64_t checked_header_length(std::string_view first_bytes, std::uint64_t file_bytes,
                                    const std::string& file) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    fail(file, fmt::format("it has {} bytes, and the header's length alone takes 8", file_bytes));
  }
  std::uint64_t length = 0;
  for (std::uint64_t i = 0; i < kLengthBytes; ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(first_bytes[i])} << (8 * i);
  }
  if (length > kLongestHeader) {
    fail(file, fmt::format("its header claims {} bytes, more than the format's limit of {}", length,
                           kLongestHeader));
  }
  if (length > file_bytes - kLengthBytes) {
    fail(file, fmt::format("its header claims {} bytes, but the file has {} bytes: it may be truncated",
                           length, file_bytes));
  }
  return length;
}

Header parse_header(std::string_view json, std::uint64_t data_bytes, const std::string& file) {
  Header header = read_json(json, file);
  for (const auto& entry : header.entries) check_entry(entry, data_bytes, file);
  // The format orders the bytes, not the keys of the header. Empty tensors are sorted before others with the
  // same offset.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& left, const auto& right) {
    return std::tuple(left.begin, left.end) < std::tuple(right.begin, right.end);
  });
  check_cover(header.entries, data_bytes, file);
  return header;
}

std::string make_header(Header& header) {
  check_unique(header.entries);
  sort_as_reference(header.entries);
  std::uint64_t offset = 0;
  for (auto& entry : header.entries) assign_range(entry, offset);
  for (const auto& [name, value] : header.metadata) {
    check_text(name, "metadata key");
    check_text(value, "metadata value");
  }
  std::string json = write_json(header);
  json.append((kLengthBytes - json.size() % kLengthBytes) % kLengthBytes, ' ');
  if (json.size() <= kLongestHeader) return length_bytes(json.size()) + json;
  throw UsageError(fmt::format(
      "cannot write a safetensors file: its header would have {} bytes, more than the format's limit of {}.",
      json.size(), kLongestHeader));
}

}  // namespace lockstep::safetensors
