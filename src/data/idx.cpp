#include "lockstep/data/idx.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "core/input_file.hpp"
#include "data/images/gzip_file.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"

static_assert(std::endian::native == std::endian::little,
              "elements are turned from big-endian to little-endian");

namespace lockstep {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kDimensionBytes = 4;
/// The limit of LibTorch's kernels; the format allows 255.
constexpr std::size_t kMostDimensions = 64;

struct Code {
  unsigned char code;
  at::ScalarType type;
};
constexpr std::array kCodes = {Code{0x08, at::kByte}, Code{0x09, at::kChar},  Code{0x0B, at::kShort},
                               Code{0x0C, at::kInt},  Code{0x0D, at::kFloat}, Code{0x0E, at::kDouble}};

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw DataError(fmt::format("'{}' is not a valid IDX file: {}.", name, what));
}

using Magic = std::array<unsigned char, kMagicBytes>;

at::ScalarType checked_type(const Magic& magic, const std::string& name) {
  if (magic[0] != 0 || magic[1] != 0) {
    fail(name,
         fmt::format("it begins with the bytes 0x{:02X} 0x{:02X} instead of two zeros", magic[0], magic[1]));
  }
  const auto found =
      std::find_if(kCodes.begin(), kCodes.end(), [&](const auto& code) { return code.code == magic[2]; });
  if (found == kCodes.end())
    fail(name, fmt::format("byte 2, the dtype, is 0x{:02X}, which the format does not know", magic[2]));
  if (magic[3] == 0 || magic[3] > kMostDimensions) {
    fail(name, fmt::format("byte 3, the number of dimensions, is {} instead of 1 to {}", magic[3],
                           kMostDimensions));
  }
  return found->type;
}

void check_header(const InputFile& file, std::size_t dimensions, const std::string& name) {
  const auto header = kMagicBytes + dimensions * kDimensionBytes;
  if (file.size() >= header) return;
  fail(name, fmt::format("its {} dimensions take a header of {} bytes, but the file has {}", dimensions,
                         header, file.size()));
}

template <class File>
std::vector<std::int64_t> read_shape(File& file, std::size_t dimensions) {
  std::vector<unsigned char> bytes(dimensions * kDimensionBytes);
  file.read(bytes.data(), bytes.size());
  std::vector<std::int64_t> shape;
  for (std::size_t offset = 0; offset < bytes.size(); offset += kDimensionBytes) {
    std::int64_t size = 0;
    for (std::size_t i = 0; i < kDimensionBytes; ++i) size = size << 8 | bytes[offset + i];
    shape.push_back(size);
  }
  return shape;
}

/// The number of bytes of the elements; fails above 2^63 - 1. Dimensions of 0 are left out of the product,
/// because LibTorch computes strides from the other dimensions even for a tensor without elements.
std::uint64_t data_bytes(const std::vector<std::int64_t>& shape, std::size_t element,
                         const std::string& name) {
  auto product = static_cast<std::int64_t>(element);
  bool empty = false;
  for (const auto size : shape) {
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) {
      fail(name, "its dimensions claim more than 2^63 - 1 bytes");
    }
  }
  return empty ? 0 : static_cast<std::uint64_t>(product);
}

void check_size(const InputFile& file, std::uint64_t header, std::uint64_t data, const std::string& name) {
  if (file.size() - header == data) return;
  fail(name, fmt::format("its header claims {} data bytes from byte {} on, but the file has {}{}", data,
                         header, file.size() - header,
                         file.size() - header < data ? ": it may be truncated"
                                                     : ": there are more bytes after the data"));
}

/// Reverses the bytes of every element, in place.
void swap_elements(const at::Tensor& tensor) {
  const auto width = static_cast<std::ptrdiff_t>(tensor.element_size());
  auto* bytes = static_cast<char*>(tensor.mutable_data_ptr());
  const auto count = static_cast<std::ptrdiff_t>(tensor.nbytes());
  for (std::ptrdiff_t offset = 0; width > 1 && offset < count; offset += width) {
    std::reverse(bytes + offset, bytes + offset + width);
  }
}

at::Tensor read_gzip(const std::filesystem::path& path, const std::string& name) {
  GzipFile file(path);
  Magic magic{};
  file.read(magic.data(), magic.size());
  const auto type = checked_type(magic, name);
  const auto shape = read_shape(file, magic[3]);
  const auto bytes = data_bytes(shape, c10::elementSize(type), name);
  if (bytes > file.most_bytes())
    fail(name, fmt::format("its header claims {} data bytes, more than can be in a file of its size", bytes));
  auto tensor = at::empty(shape, at::TensorOptions().dtype(type));
  file.read(tensor.mutable_data_ptr(), bytes);
  if (!file.at_end()) fail(name, "there are more bytes after the data");
  swap_elements(tensor);
  return tensor;
}

unsigned char code_of(const at::Tensor& tensor) {
  const auto found = std::find_if(kCodes.begin(), kCodes.end(),
                                  [&](const auto& code) { return code.type == tensor.scalar_type(); });
  if (found != kCodes.end()) return found->code;
  throw UsageError(fmt::format(
      "write_idx: IDX files hold uint8, int8, int16, int32, float32 and float64, but the tensor is "
      "{}. Convert it first.",
      tensor.dtype().name()));
}

std::string header_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() < 1 || tensor.dim() > static_cast<std::int64_t>(kMostDimensions)) {
    throw UsageError(fmt::format("write_idx needs a tensor of 1 to {} dimensions, got {}.", kMostDimensions,
                                 tensor.defined() ? fmt::to_string(tensor.dim()) : "an undefined tensor"));
  }
  std::string header{'\0', '\0', static_cast<char>(code_of(tensor)), static_cast<char>(tensor.dim())};
  for (const auto size : tensor.sizes()) {
    if (size > std::numeric_limits<std::uint32_t>::max()) {
      throw UsageError(fmt::format("write_idx: a dimension of {} exceeds the format's 2^32 - 1.", size));
    }
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(size >> shift & 0xFF);
  }
  return header;
}

}  // namespace

at::Tensor read_idx(const std::filesystem::path& path) {
  InputFile file(path);
  const auto name = path.string();
  Magic magic{};
  if (file.size() < magic.size()) fail(name, fmt::format("it has only {} bytes", file.size()));
  file.read(magic.data(), magic.size());
  if (magic[0] == 0x1F && magic[1] == 0x8B) return read_gzip(path, name);
  const auto type = checked_type(magic, name);
  check_header(file, magic[3], name);
  const auto shape = read_shape(file, magic[3]);
  const auto bytes = data_bytes(shape, c10::elementSize(type), name);
  check_size(file, kMagicBytes + kDimensionBytes * shape.size(), bytes, name);
  auto tensor = at::empty(shape, at::TensorOptions().dtype(type));
  file.read(tensor.mutable_data_ptr(), bytes);
  swap_elements(tensor);
  return tensor;
}

void write_idx(const at::Tensor& tensor, const std::filesystem::path& path) {
  const auto header = header_of(tensor);
  // A copy, because its bytes are reversed in place.
  const auto data = tensor.detach().to(at::kCPU).resolve_neg().clone(at::MemoryFormat::Contiguous);
  swap_elements(data);
  AtomicFile file(path);
  file.write(header);
  file.write(data.const_data_ptr(), data.nbytes());
  file.commit();
}

}  // namespace lockstep
