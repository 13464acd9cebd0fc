#include "core/checksum.hpp"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/checksum_tables.hpp"
#include "core/input_file.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kChecksumBytes = std::size_t{1} << 20;

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t update_by_instruction(std::uint32_t state,
                                                                      const unsigned char* data,
                                                                      std::size_t bytes) noexcept {
  std::uint64_t wide = state;
  for (; bytes >= sizeof(std::uint64_t); bytes -= sizeof(std::uint64_t), data += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof(word));
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes) narrow = _mm_crc32_u8(narrow, *data++);
  return narrow;
}
#endif

}  // namespace

void Crc32c::update(const void* data, std::size_t bytes) noexcept {
  const auto* next = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") != 0) {
    register_ = update_by_instruction(register_, next, bytes);
    return;
  }
#endif
  register_ = checksum::update_by_table(register_, next, bytes);
}

std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept {
  Crc32c checksum;
  checksum.update(data, bytes);
  return checksum.value();
}

std::string checksum_text(std::uint32_t checksum) { return fmt::format("{:08x}", checksum); }

FileDigest digest_of(const std::filesystem::path& path) {
  InputFile file(path);
  std::vector<char> piece(std::min<std::uint64_t>(kChecksumBytes, file.size()));
  Crc32c checksum;
  for (std::uint64_t left = file.size(); left > 0;) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(left, piece.size()));
    file.read(piece.data(), bytes);
    checksum.update(piece.data(), bytes);
    left -= bytes;
  }
  return {file.size(), checksum.value()};
}

}  // namespace lockstep
