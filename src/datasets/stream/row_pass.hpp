#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/iterable_dataset.hpp"

namespace lockstep::stream {

using Row = Value::Fields;
using Json = nlohmann::json;

/// The rows of one pass, after one operation of a stream. One thread at a time.
class RowPass {
 public:
  virtual ~RowPass() = default;
  virtual std::optional<Row> next() = 0;
  /// Skips rows, without creating them if possible. Returns how many were skipped: fewer than `count` at the
  /// end.
  virtual std::int64_t skip(std::int64_t count);
  /// The position: a new pass that loads it continues with the next row.
  virtual Json state() const = 0;
  /// Called before the first row. Throws Json::exception for an invalid state.
  virtual void load(const Json& state) = 0;
};

using PassPointer = std::unique_ptr<RowPass>;

/// A number of rows or shards in a state. Throws UsageError if it is below 0 or above `most`.
std::int64_t number_in(const Json& state, const char* name,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// The files with damage, each once. Any thread.
class BadFiles {
 public:
  /// The rest of the file was abandoned.
  void add(const std::filesystem::path& file, const std::string& reason);
  /// A line was left out. A pass reports the lines of a file in order, from its beginning: one that another
  /// pass has reported, or passed by, is not counted again.
  void add_line(const std::filesystem::path& file, std::int64_t line, const std::string& reason);
  std::vector<BadFile> list() const;

 private:
  struct Known {
    BadFile file;
    std::int64_t last_line = -1;
  };
  Known& known(const std::filesystem::path& file);

  mutable std::mutex lock_;
  std::vector<Known> files_;
};

/// The rows of one shard, from its beginning.
class ShardRows {
 public:
  virtual ~ShardRows() = default;
  virtual std::optional<Row> next() = 0;
  virtual std::int64_t skip(std::int64_t count) = 0;
};

/// Opens a shard. Throws DataError.
using OpenShard = std::function<std::unique_ptr<ShardRows>(std::int64_t shard)>;

/// Called for a line that is left out; if empty, it is an error.
using TakeBadLine = std::function<void(std::int64_t line, const std::string& reason)>;

/// The columns of a stream's first file, which say in which unit all of its files give times: rows have
/// numbers without a unit. Read when a file with times asks for them, once. Any thread.
class FirstFile {
 public:
  FirstFile(std::filesystem::path path, LoadOptions options)
      : path_(std::move(path)), options_(std::move(options)) {}

  /// The piece of another file, with the units of the first. Throws DataError if a time does not fit them.
  ArrowDataset with_its_units(ArrowDataset piece);

 private:
  Features read_features() const;
  const Features& features();

  std::filesystem::path path_;
  LoadOptions options_;
  std::once_flag read_;
  Features features_;
};

/// A file of a table or of text. A compressed file is decompressed now; with `take_bad`, up to its damage.
/// `first`: of the same stream.
std::unique_ptr<ShardRows> table_rows(const std::filesystem::path& path, FileFormat format,
                                      const LoadOptions& options, const TakeBadLine& take_bad,
                                      std::shared_ptr<FirstFile> first);
/// A WebDataset shard.
std::unique_ptr<ShardRows> tar_rows(const std::filesystem::path& path, std::uint64_t max_sample_bytes);
/// Of IterableDataset::from_generator.
std::unique_ptr<ShardRows> generator_rows(IterableDataset::Generator generator);

/// Called for a shard that cannot be read; if empty, that is an error.
using TakeBad = std::function<void(std::int64_t shard, const std::string& reason)>;

/// A shard's name in errors.
using NameShard = std::function<std::string(std::int64_t shard)>;

/// These shards, in order.
PassPointer shards_pass(std::vector<std::int64_t> shards, OpenShard open, TakeBad take_bad, NameShard name);

PassPointer map_pass(PassPointer source, IterableDataset::MapFunction function,
                     std::vector<std::string> remove_columns);
PassPointer filter_pass(PassPointer source, IterableDataset::KeepFunction keep);
PassPointer take_pass(PassPointer source, std::int64_t count);
PassPointer skip_pass(PassPointer source, std::int64_t count);
PassPointer batch_pass(PassPointer source, std::int64_t batch_size, bool drop_last);
/// Row `offset` of every `step` rows.
PassPointer step_pass(PassPointer source, std::int64_t step, std::int64_t offset);
PassPointer shuffle_pass(PassPointer source, std::int64_t buffer_size, std::uint64_t seed);

}  // namespace lockstep::stream
