#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizers/normalized_string.hpp"
#include "tokenizers/pre_tokenizer.hpp"

namespace lockstep::tokenizer {

/// A token of a word: its id, and its byte range in the word.
struct Token {
  std::uint32_t id = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};
using Tokens = std::vector<Token>;

/// Caches the tokens of recent short words. Of fixed size: a word replaces another one with the same hash.
/// For one thread at a time.
class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 24;
  static constexpr std::size_t kMostTokens = 8;

  WordCache() : slots_(kSlots) {}

  /// The key of a word, computed once for lookup and insertion.
  struct Key {
    std::array<std::uint64_t, 3> bytes{};
    std::uint64_t length = 0;
    std::size_t slot = 0;
  };
  static bool fits(std::string_view word) noexcept { return word.size() <= kLongestWord; }
  /// A part of a word has another key than a word of the same text.
  static Key key(std::string_view word, bool is_part) noexcept {
    Key key;
    std::memcpy(key.bytes.data(), word.data(), word.size());
    key.length = word.size() + (is_part ? kLongestWord + 1 : 0);
    std::uint64_t hash = key.length;
    for (const auto part : key.bytes) hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL, hash ^= hash >> 29;
    key.slot = hash & (kSlots - 1);
    return key;
  }

  /// The word's tokens; empty if it is not cached, or has none.
  std::span<const Token> find(const Key& key) const noexcept {
    const auto& slot = slots_[key.slot];
    if (slot.length != key.length || slot.bytes != key.bytes) return {};
    return {slot.tokens.data(), slot.count};
  }

  void keep(const Key& key, std::span<const Token> tokens) noexcept {
    if (tokens.size() > kMostTokens) return;
    auto& slot = slots_[key.slot];
    slot.bytes = key.bytes;
    slot.length = static_cast<std::uint8_t>(key.length);
    slot.count = static_cast<std::uint8_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
  }

 private:
  static constexpr std::size_t kSlots = 8192;
  struct Slot {
    std::array<std::uint64_t, 3> bytes{};
    std::array<Token, kMostTokens> tokens{};
    std::uint8_t length = 0;
    std::uint8_t count = 0;
  };
  std::vector<Slot> slots_;
};

/// Buffers for encoding a text, and the word cache. For one thread at a time, and always the same tokenizer.
struct Workspace {
  WordCache cache;
  Tokens tokens;
  SplitText split;
  NormalizedString normalized;
  /// For each byte of a text that is not ASCII, the number of its character.
  std::vector<std::uint32_t> characters;
};

/// Lends workspaces to threads, and keeps as many as were in use at a time, at most 256.
class WorkspacePool {
 public:
  /// Returns the workspace when it is destroyed.
  class Lease {
   public:
    explicit Lease(WorkspacePool& pool) : pool_(pool), workspace_(pool.take()) {}
    ~Lease() { pool_.give(std::move(workspace_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Workspace& operator*() const noexcept { return *workspace_; }

   private:
    WorkspacePool& pool_;
    std::unique_ptr<Workspace> workspace_;
  };

 private:
  std::unique_ptr<Workspace> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto workspace = std::move(free_.back());
        free_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<Workspace>();
  }

  void give(std::unique_ptr<Workspace> workspace) noexcept {
    const std::lock_guard lock(mutex_);
    if (free_.size() < free_.capacity() || free_.size() < kKept) free_.push_back(std::move(workspace));
  }

  static constexpr std::size_t kKept = 256;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

}  // namespace lockstep::tokenizer
