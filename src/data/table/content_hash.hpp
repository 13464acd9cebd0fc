#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep::table {

/// XXH64 with seed 0, piece by piece (source: "xxHash fast digest algorithm", specification 0.1.1). For
/// telling contents apart; no protection against somebody who means harm. *Local*.
class ContentHash {
 public:
  void update(const void* data, std::size_t bytes) noexcept;
  void update(std::string_view text) noexcept { update(text.data(), text.size()); }
  /// With its length, so that neighbours cannot be mixed up.
  void update_field(std::string_view text) noexcept;
  void update_number(std::uint64_t number) noexcept { update(&number, sizeof number); }

  /// Of everything so far.
  std::uint64_t value() const noexcept;
  /// As 16 hexadecimal digits.
  std::string text() const;

 private:
  void stripe(const unsigned char* data) noexcept;

  std::array<std::uint64_t, 4> lanes_{0x60EA27EEADC0B5D6ULL, 0xC2B2AE3D27D4EB4FULL, 0, 0x61C8864E7A143579ULL};
  std::array<unsigned char, 32> waiting_{};
  std::size_t waiting_bytes_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace lockstep::table
