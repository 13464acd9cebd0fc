#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "normalized_string.hpp"
#include "splitters.hpp"
#include "word_cache.hpp"

namespace lockstep::tokenizer {

/// What encoding a text needs room for, and the words seen lately. For one thread at a time, one tokenizer
/// for good.
struct Workspace {
  WordCache cache;
  Tokens tokens;
  Words words;
  Words spare;
  NormalizedString normalized;
  /// For each byte of a text that is not ASCII the number of its character.
  std::vector<std::uint32_t> characters;
  /// A word with a blank before it, and the words of that.
  std::string prefixed;
  Words prefixed_words;
};

/// Lends workspaces to threads, and keeps as many as there were threads at a time.
class WorkspacePool {
 public:
  /// Gives the workspace back when it goes.
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
