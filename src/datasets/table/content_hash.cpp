#include "content_hash.hpp"

#include <fmt/core.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::table {

struct ContentHash::State {
  XXH3_state_t hash;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
ContentHash::~ContentHash() = default;

void ContentHash::update(const void* data, std::size_t bytes) noexcept {
  if (bytes > 0) XXH3_128bits_update(&state_->hash, data, bytes);
}

void ContentHash::update_field(std::string_view text) noexcept {
  update_number(text.size());
  update(text);
}

std::string ContentHash::text() const {
  const XXH128_hash_t value = XXH3_128bits_digest(&state_->hash);
  return fmt::format("{:016x}{:016x}", value.high64, value.low64);
}

std::string content_hash(std::string_view bytes) {
  ContentHash hash;
  hash.update(bytes);
  return hash.text();
}

}  // namespace lockstep::table
