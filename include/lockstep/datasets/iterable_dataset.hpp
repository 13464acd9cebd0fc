#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/arrow_dataset.hpp"
#include "lockstep/datasets/value.hpp"

namespace lockstep {

/// How files are streamed.
struct StreamOptions {
  /// The format and the columns of the files. `trusted` as for ArrowDataset::load.
  LoadOptions load = {};
  /// Leave out what cannot be read: see IterableDataset::bad_files. Otherwise it is an error. In formats of
  /// lines (JSON lines, CSV, text) a broken line costs that line alone: one that is not valid, not UTF-8, or
  /// does not fit the types of the lines before it. Elsewhere the rest of the file is left out, from the
  /// damage on; in a truncated .gz or .zst file, after the last whole line. The rows that are left do not
  /// depend on the number of CPUs.
  bool skip_bad = false;
  /// Maximum total size of the members of one sample of a tar file, headers included. A larger sample is an
  /// error: a guard against files that claim any size, and against compressed ones that decompress without
  /// end.
  std::uint64_t max_sample_bytes = std::uint64_t{1} << 30;
};

/// A file of which `skip_bad` has left something out.
struct BadFile {
  std::filesystem::path path = {};
  /// Why the rest of the file was left out, if it was; otherwise what is wrong with the first such line,
  /// which it names.
  std::string reason = {};
  /// How many lines were left out alone, in one pass over the file.
  std::int64_t bad_lines = 0;
  /// Whether the rest of the file was left out.
  bool is_abandoned = false;
};

/// How split_dataset_by_node splits a stream, in the terms of `datasets`.
enum class SplitStrategy : std::uint8_t {
  /// By files if their number is a multiple of the number of ranks, otherwise by rows.
  automatic,
  /// Rank r reads the files r, r + world_size, ...; some ranks may have one file more than others.
  shards,
  /// Every rank reads all files and keeps every world_size-th row.
  examples,
};

/// One pass over the rows of a stream. *Local*; one thread at a time; can be moved, not copied.
class RowStream {
 public:
  RowStream(RowStream&&) noexcept;
  RowStream& operator=(RowStream&&) noexcept;
  ~RowStream();

  /// The next row; nothing after the last. Throws DataError, naming the file and the position in it, for a
  /// file that cannot be read; exceptions of a function of map() or filter() pass through.
  std::optional<Value::Fields> next();

  /// The position of the pass, as one line of JSON, from which the next row can be resumed. See
  /// IterableDataset::load_state_dict.
  std::string state_dict() const;

 private:
  friend class IterableDataset;
  struct State;
  explicit RowStream(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// Rows that are read from many files in sequence, without ever holding all of them: the counterpart of
/// Python's `datasets.IterableDataset`.
///
///     auto stream = IterableDataset::load("web-{000..146}.tar").shuffle(42, 10'000);
///     stream = split_dataset_by_node(stream, rank, world_size);
///     for (auto& row : stream) use(row);
///
/// A row is a structure: names and values. Formats are Parquet, Arrow, JSON lines, CSV, text and WebDataset's
/// tar. Each file is a *shard*, which only one rank and one worker opens, if there are enough shards. Nothing
/// is cached, and nothing is read before the first row is requested. A compressed shard of a
/// table or text is decompressed into an unnamed file in TMPDIR while it is read; a compressed tar needs no
/// space. Types of JSON and CSV are inferred piece by piece while a file is read, so set `features` if a
/// column begins with whole numbers and continues with others.
///
/// *WebDataset.* Consecutive members of a tar file whose names are the same up to the first dot of the last
/// path component are one row: `__key__` (that name), `__url__` (the tar file) and a field of bytes per
/// member, named after what follows that dot, in lower case. Nothing is decoded. Members that are not regular
/// files, names without a dot and names that begin with `__...__` are skipped. Formats: ustar, pax, GNU's
/// long names and sizes. A tar file may be compressed, whatever its name, and may lack the mark at its end
/// (with a warning, as it may be cut off there). Bytes of names that are not UTF-8 become `\xe9`. Errors,
/// naming the file and the member: a name with "..", a size larger than the file, a damaged header, a file
/// that ends in a member, sparse members, a field that occurs twice in a row.
///
/// *A value*: every operation returns another stream, and copies share what they do not change. Functions of
/// map() and filter() may be called from several threads at once (the workers of a loader), and again for the
/// same row (see state_dict). Everything is *Local*.
///
/// *Order.* It depends only on the seed, the epoch, the ranks and the number of workers. shuffle() reorders
/// the shards in every epoch; take() and skip() fix that order, together with that of every shuffle() before
/// them, because the rows that they select must be the same in every epoch.
///
/// Errors: UsageError for a wrong argument, DataError as RowStream::next().
class IterableDataset {
 public:
  /// Returns a shard's next row, and nothing after the last.
  using Generator = std::function<std::optional<Value::Fields>()>;
  using MapFunction = std::function<Value::Fields(const Value::Fields&)>;
  using KeepFunction = std::function<bool(const Value::Fields&)>;
  class Iterator;

  /// The files of a pattern, sorted by name: "a-{000..146}.tar" (and "{a,b}") names each file, `*`, `?` and
  /// `[...]` match existing ones. Throws DataError if none matches.
  static IterableDataset load(const std::filesystem::path& pattern, const StreamOptions& options = {});
  /// Several patterns, in this order.
  static IterableDataset load(std::span<const std::filesystem::path> patterns,
                              const StreamOptions& options = {});
  /// `num_shards` shards. Each pass reads a shard from its beginning with the generator that `open(shard)`
  /// returns.
  static IterableDataset from_generator(std::int64_t num_shards,
                                        const std::function<Generator(std::int64_t shard)>& open);

  /// Shuffles the shards, and the rows with a buffer of `buffer_size` rows, from which one is drawn at a
  /// time. A row is returned at most buffer_size - 1 positions earlier than without the buffer.
  IterableDataset shuffle(std::uint64_t seed, std::int64_t buffer_size = 1000) const;
  /// The first `count` rows; all but the first `count` rows. Before split_dataset_by_node, `count` is split
  /// over the ranks; it is always split over workers, as in Python.
  IterableDataset take(std::int64_t count) const;
  IterableDataset skip(std::int64_t count) const;
  /// The returned fields replace those of the same name, or are appended. `remove_columns` removes columns of
  /// the source.
  IterableDataset map(MapFunction function, std::vector<std::string> remove_columns = {}) const;
  IterableDataset filter(KeepFunction keep) const;
  /// Combines rows into rows of lists, `batch_size` rows each. A field that a row does not have is null.
  IterableDataset batch(std::int64_t batch_size, bool drop_last_batch = false) const;

  /// The number of files, or of shards of a generator, of all ranks together.
  std::int64_t num_shards() const noexcept;
  /// Whether split_dataset_by_node() was applied.
  bool is_split() const noexcept;

  /// The epoch of the next pass, from 0. Setting another epoch discards a loaded state.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const noexcept { return epoch_; }

  /// The position of the last pass that begin() has started, or where it would begin.
  std::string state_dict() const;
  /// The next pass continues at `state`, row for row and bit for bit, in its epoch. The current shard is read
  /// again from its beginning up to the position, without creating rows; with a shuffle, rows are read again
  /// as far back as its buffer reaches, about buffer_size * ln(buffer_size) rows. Throws UsageError for the
  /// state of another stream, another rank, or another number of ranks or workers: the contents of a buffer
  /// cannot be redistributed. A file that is now shorter than its position is an error when it is opened.
  void load_state_dict(const std::string& state);

  /// Begins a pass; an input iterator.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// A pass over the part of worker `worker` of `num_workers`: the shards worker, worker + num_workers, ...
  /// of this rank. A worker without a shard returns no rows. A nonempty `state` resumes from there.
  RowStream open(int num_workers = 1, int worker = 0, const std::string& state = {}) const;

  /// The files of which `skip_bad` has left something out since load(), in any stream derived from it, in the
  /// order of the first occurrence, each once. Lines count when the rows around them are read, up to a
  /// megabyte ahead. Any thread.
  std::vector<BadFile> bad_files() const;

  /// Names the files (not their folders or contents) and the operations (not their functions): a state is
  /// checked against it. The same in every run and on every rank.
  std::string fingerprint() const;

 private:
  struct Plan;
  explicit IterableDataset(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}
  template <typename Change>
  IterableDataset changed(const Change& change) const;
  friend IterableDataset split_dataset_by_node(const IterableDataset& dataset, int rank, int world_size,
                                               SplitStrategy strategy);

  std::shared_ptr<const Plan> plan_;
  std::int64_t epoch_ = 0;
  std::string start_;
  std::shared_ptr<RowStream> pass_;
};

/// The part of rank `rank` of `world_size`. If the stream is already split, each part is split again. Throws
/// UsageError for a rank out of range, a strategy other than that of the first split, and
/// SplitStrategy::shards with fewer shards than ranks.
IterableDataset split_dataset_by_node(const IterableDataset& dataset, int rank, int world_size,
                                      SplitStrategy strategy = SplitStrategy::automatic);

/// The rows of one pass. An input iterator that owns its row until the next increment.
class IterableDataset::Iterator {
 public:
  using value_type = Value::Fields;
  using difference_type = std::ptrdiff_t;

  Value::Fields& operator*() const noexcept { return *row_; }
  Value::Fields* operator->() const noexcept { return &*row_; }
  /// Throws as RowStream::next().
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& iterator, std::default_sentinel_t) noexcept {
    return !iterator.row_;
  }

 private:
  friend class IterableDataset;
  explicit Iterator(std::shared_ptr<RowStream> rows);

  std::shared_ptr<RowStream> rows_;
  mutable std::optional<Value::Fields> row_;
};

}  // namespace lockstep
