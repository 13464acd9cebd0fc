#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::table {

/// XXH3 with 128 bits (libxxhash), piece by piece: the one hash of contents and of keys made of them. For
/// telling contents apart; no protection against somebody who means harm. *Local*.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void update(const void* data, std::size_t bytes) noexcept;
  void update(std::string_view text) noexcept { update(text.data(), text.size()); }
  /// With its length, so that neighbours cannot be mixed up.
  void update_field(std::string_view text) noexcept;
  void update_number(std::uint64_t number) noexcept { update(&number, sizeof number); }

  /// Of everything so far, as 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of these bytes alone.
std::string content_hash(std::string_view bytes);

}  // namespace lockstep::table
