#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "datasets/distributed/cached_run.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// Work whose shards are lines of text: each row's number, doubled. Counts what it does.
struct Doubling {
  explicit Doubling(std::int64_t rows, std::int64_t shard_rows, std::string key = "0123456789abcdef") {
    work.what = "map 'doubling'";
    work.manifest.key = std::move(key);
    work.manifest.name = "doubling";
    work.manifest.fields = {{"version", "\"1\""}};
    work.tasks = shard_grid(rows, 1, shard_rows);
    work.start = [this](const Worker& worker) {
      ++setups;
      return
          [this, worker](const ShardTask& task, const std::filesystem::path& file, const std::atomic<bool>&) {
            ++computed;
            if (before) before(task, worker);
            std::string text;
            for (std::int64_t row = 0; row < task.rows; ++row)
              text += std::to_string(2 * (task.first_row + row)) + "\n";
            write_bytes(file, text + std::string(padding, '#'));
            return static_cast<std::uint64_t>(task.rows);
          };
    };
  }

  ShardedWork work;
  std::atomic<int> setups{0};
  std::atomic<int> computed{0};
  /// Called before each shard.
  std::function<void(const ShardTask&, const Worker&)> before;
  /// Bytes at the end of each shard.
  std::size_t padding = 0;
};

/// The result's files and bytes, but for its manifest, which has times in it.
inline std::map<std::string, std::string> shards_of(const std::filesystem::path& entry) {
  std::map<std::string, std::string> shards;
  for (const auto& [number, shard] : finished_shards(entry))
    shards[shard.file_name()] = read_bytes(entry / shard.file_name());
  return shards;
}

/// Options for tests: what takes seconds among hosts takes a fraction of one here.
inline CachedRunOptions quick(const std::filesystem::path& cache) {
  using namespace std::chrono_literals;
  return {.cache = cache,
          .lease = {.beat = 50ms, .stale_after = 1s},
          .session = {.message = 1h, .beat = 50ms, .dead_after = 2s}};
}

}  // namespace lockstep::testing
