#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::net {

// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), here so that the launcher and the library need no
// cryptographic library. Every function is *Local*; different objects may be used by different threads.

/// The hash of bytes that come piece by piece.
class Sha256 {
 public:
  Sha256();
  Sha256& update(std::string_view bytes);
  /// The 32 bytes. Once only: the object is spent.
  std::string finish();

 private:
  void compress(const unsigned char* block);

  std::array<std::uint32_t, 8> state_;
  std::array<unsigned char, 64> block_{};
  std::uint64_t length_ = 0;
};

/// 32 bytes.
std::string sha256(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view message);

/// Compares in a time that depends on the lengths only: how much of a proof was right is not to be measured.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// From the system's generator. Throws Error when it has none.
std::string random_bytes(std::size_t count);

/// Lower-case hexadecimal.
std::string hex(std::string_view bytes);

}  // namespace lockstep::net
