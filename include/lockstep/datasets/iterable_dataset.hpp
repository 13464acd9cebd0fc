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
  /// What the files are, and which columns they have. `trusted` as for ArrowDataset::load.
  LoadOptions load = {};
  /// Passes over what is left of a file that cannot be read: see IterableDataset::bad_files. Otherwise it is
  /// an error.
  bool skip_bad = false;
  /// The most bytes that the members of one sample of a tar file may have together, headers included. A
  /// sample with more is an error: it guards against files that claim any size, and against compressed ones
  /// that unpack without end.
  std::uint64_t max_sample_bytes = std::uint64_t{1} << 30;
};

/// A file that `skip_bad` has passed over, and why.
struct BadFile {
  std::filesystem::path path;
  std::string reason;
};

/// How split_dataset_by_node divides a stream, in the words of `datasets`.
enum class SplitStrategy : std::uint8_t {
  /// Files where their number is a multiple of the ranks', else rows.
  automatic,
  /// Rank r reads the files r, r + world_size, ...; some ranks may have one file more than others.
  shards,
  /// Every rank reads all files and keeps every world_size-th row.
  examples,
};

/// One pass over the rows of a stream. *Local*; one thread at a time; moved, not copied.
class RowStream {
 public:
  RowStream(RowStream&&) noexcept;
  RowStream& operator=(RowStream&&) noexcept;
  ~RowStream();

  /// The next row; nothing after the last. Throws DataError, naming the file and the place in it, for a file
  /// that cannot be read, and what a function of map() or filter() throws.
  std::optional<Value::Fields> next();

  /// Where the pass is, as one line of JSON: the next row is the first one after it. See
  /// IterableDataset::load_state_dict.
  std::string state_dict() const;

 private:
  friend class IterableDataset;
  struct State;
  explicit RowStream(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// Rows that are read from many files one after the other, without ever holding them all: what
/// `datasets.IterableDataset` is in Python.
///
///     auto stream = IterableDataset::load("web-{000..146}.tar").shuffle(42, 10'000);
///     stream = split_dataset_by_node(stream, rank, world_size);
///     for (auto& row : stream) use(row);
///
/// A row is a structure: names and values. Files may hold Parquet, Arrow's formats, JSON lines, CSV, text or
/// WebDataset's tar; each of them is a *shard*, which only one rank and one worker opens, as far as there are
/// enough. Nothing is cached and nothing is read before the first row is asked for. A compressed shard (.gz,
/// .zst) of a table or text is unpacked into a nameless file in TMPDIR for as long as it is read; a
/// compressed tar needs no room. Types of JSON and CSV are found as the pieces of a file come, so give
/// `features` where a column begins with whole numbers and goes on with others.
///
/// *WebDataset.* Members of a tar file that follow each other and have the same name up to the first dot of
/// the last part are one row: `__key__` (that name), `__url__` (the tar file) and a field of bytes for each
/// member, named after what comes behind that dot, in lower case. Nothing is decoded. Members that are no
/// regular files, names without a dot and names that begin with `__...__` are passed over. Formats: ustar,
/// pax, GNU's long names and sizes. An error, with the file and the member: a name that leaves the folder
/// (".." or a leading "/"), a size that the file has not, a damaged header, a file that ends early, sparse
/// members, one field twice in a row.
///
/// *A value*: every operation gives another stream, and copies share what they do not change. Functions of
/// map() and filter() may be called from several threads at once (the workers of a loader), and again for
/// the same row (see state_dict). Everything is *Local*.
///
/// *Order.* It depends on the seed, the epoch, the ranks and the number of workers alone. shuffle() puts the
/// shards into another order in every epoch; take() and skip() fix it, together with the order of every
/// shuffle() before them, as the rows that they leave must be the same in every epoch.
///
/// Errors: UsageError for a wrong argument, DataError as RowStream::next().
class IterableDataset {
 public:
  /// Gives a shard's next row, and nothing after the last.
  using Generator = std::function<std::optional<Value::Fields>()>;
  using MapFunction = std::function<Value::Fields(const Value::Fields&)>;
  using KeepFunction = std::function<bool(const Value::Fields&)>;
  class Iterator;

  /// The files of a pattern, in the order of their names: "a-{000..146}.tar" (and "{a,b}") names each one,
  /// `*`, `?` and `[...]` those that there are. Throws DataError where none matches.
  static IterableDataset load(const std::filesystem::path& pattern, const StreamOptions& options = {});
  /// Several patterns, one after the other.
  static IterableDataset load(std::span<const std::filesystem::path> patterns,
                              const StreamOptions& options = {});
  /// `num_shards` shards, each read by what `open(shard)` returns, from its beginning every time.
  static IterableDataset from_generator(std::int64_t num_shards,
                                        const std::function<Generator(std::int64_t shard)>& open);

  /// Rows in another order: that of the shards, and a buffer of `buffer_size` rows, out of which one is drawn
  /// at a time. A row comes at most buffer_size - 1 places earlier than it would without the buffer.
  IterableDataset shuffle(std::uint64_t seed, std::int64_t buffer_size = 1000) const;
  /// The first `count` rows; without the first `count` rows. Called before split_dataset_by_node, `count` is
  /// divided among the ranks (and always among workers), as in Python.
  IterableDataset take(std::int64_t count) const;
  IterableDataset skip(std::int64_t count) const;
  /// The fields that the function returns replace those of the same name or come behind. `remove_columns`
  /// are those of the source that go.
  IterableDataset map(MapFunction function, std::vector<std::string> remove_columns = {}) const;
  IterableDataset filter(KeepFunction keep) const;
  /// Rows of lists, of `batch_size` rows each. A field that a row has not is null.
  IterableDataset batch(std::int64_t batch_size, bool drop_last_batch = false) const;

  /// The files, or shards of a generator, that there are for all ranks together.
  std::int64_t num_shards() const noexcept;
  /// Whether split_dataset_by_node() has divided it.
  bool is_split() const noexcept;

  /// The epoch, from 0, that the next pass is of. Another one than before forgets a loaded state.
  void set_epoch(std::int64_t epoch);
  std::int64_t epoch() const noexcept { return epoch_; }

  /// Where the pass that begin() has begun last is, or where it would begin.
  std::string state_dict() const;
  /// The next pass continues where `state` was taken, row for row and bit for bit, in that epoch. The shard
  /// under way is read again from its beginning up to the place, without making rows of it; a shuffle reads
  /// so much again as its buffer goes back, which is about buffer_size * ln(buffer_size) rows. Throws
  /// UsageError for the state of another stream, another rank, or another number of ranks or workers: what a
  /// buffer holds cannot be divided anew. A file that has become shorter than the place in it is an error
  /// when it is opened.
  void load_state_dict(const std::string& state);

  /// One pass; an input iterator.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// A pass over the part of worker `worker` of `num_workers`: the shards worker, worker + num_workers, ...
  /// of this rank's. One that gets no shard gives no row. With `state`, from there on.
  RowStream open(int num_workers = 1, int worker = 0, const std::string& state = {}) const;

  /// The files that `skip_bad` has passed over since load(), by whatever stream was made of it, in the order
  /// in which they were met first, each once. Any thread.
  std::vector<BadFile> bad_files() const;

  /// Names the files (not their folders or contents) and the operations, but for functions: what a state is
  /// checked against. The same in every run and on every rank.
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

/// The part of rank `rank` of `world_size`. Of a stream that is divided already, each part is divided again.
/// Throws UsageError for a rank out of range, another strategy than the first one's, and
/// SplitStrategy::shards with fewer shards than ranks.
IterableDataset split_dataset_by_node(const IterableDataset& dataset, int rank, int world_size,
                                      SplitStrategy strategy = SplitStrategy::automatic);

/// The rows of one pass. An input iterator: the row is its own until the next increment.
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
