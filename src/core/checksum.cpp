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

/// The polynomial of CRC-32C without its highest power, and x^0.
constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78, kOne = 0x80000000;

/// The product of two remainders.
std::uint32_t product(std::uint32_t one, std::uint32_t other) noexcept {
  std::uint32_t sum = 0;
  for (; one != 0; one <<= 1) {
    if ((one & kOne) != 0) sum ^= other;
    other = (other >> 1) ^ ((other & 1) != 0 ? kReflectedPolynomial : 0);
  }
  return sum;
}

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

// A checksum is the remainder of a polynomial over GF(2), whose bits are a buffer's, by the CRC's own. A
// buffer with n bytes behind it is that polynomial times x^(8n), and the remainder of a product is the
// product of the remainders: so the checksum of the first part, times x^(8n), plus that of the second. (What
// begins and ends a checksum, the inversion of its bits, cancels out.) x^(8n) is made of the squares x^8,
// x^16, ... that the bits of n name. Bits are in the reflected order of CRC-32C: x^0 is the highest one.
std::uint32_t join_crc32c(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept {
  std::uint32_t shift = kOne, square = kOne >> 8;
  for (; second_bytes > 0; second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) shift = product(shift, square);
    square = product(square, square);
  }
  return product(shift, first) ^ second;
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
