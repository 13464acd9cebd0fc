#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "datasets/stream/tar_rows.hpp"
#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"

namespace {

constexpr std::size_t kBlock = 512;

/// Makes every block's checksum right, which no fuzzer would find.
void sign(std::string& bytes) {
  for (std::size_t begin = 0; begin + kBlock <= bytes.size(); begin += kBlock) {
    const auto block = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
    if (std::all_of(block, block + kBlock, [](char byte) { return byte == 0; })) continue;
    std::fill(block + 148, block + 156, ' ');
    unsigned sum = 0;
    std::for_each(block, block + kBlock, [&](char byte) { sum += static_cast<unsigned char>(byte); });
    std::snprintf(&*(block + 148), 8, "%06o", sum);
  }
}

}  // namespace

/// The input: a byte that is odd where all checksums are to be right, how many rows are passed over first,
/// and the tar file's bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] % 2 == 1) sign(bytes);
  const lockstep::net::FileDescriptor file(::memfd_create("fuzz", MFD_CLOEXEC));
  if (::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return 0;
  try {
    const auto rows = lockstep::stream::tar_rows("/proc/self/fd/" + std::to_string(file.get()), 1 << 16);
    rows->skip(data[1] % 4);
    while (rows->next()) {
    }
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
