#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::net {

// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), so that the launcher and the library need no cryptographic
// library. All functions are *Local*; different objects may be used in different threads.

/// An incremental hash.
class Sha256 {
 public:
  Sha256();
  Sha256& update(std::string_view bytes);
  /// Returns the 32 bytes. Call it only once.
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

/// Compares in a time that depends only on the lengths, so that the time does not reveal how much of a proof
/// was right.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// From the system's random generator. Throws Error if it is not available.
std::string random_bytes(std::size_t count);

}  // namespace lockstep::net
