#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/batch.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/data/sharding.hpp"
#include "lockstep/data/stream_dataset.hpp"

namespace lockstep {

class ProcessGroup;

/// Options of a DataLoader.
struct DataLoaderOptions {
  /// Samples per batch of this rank (of all ranks with ShardingOptions::split_batches). The last batch of an
  /// epoch is smaller if the samples do not divide evenly.
  std::int64_t batch_size = 1;
  /// Shuffle anew in every epoch (see RandomSampler). Not used with a custom sampler.
  bool shuffle = false;
  /// Drop the last, smaller batch; with several ranks also the samples that do not fill a batch on each rank.
  bool drop_last = false;
  /// Threads that read ahead. 0 reads in the calling thread.
  int num_workers = 0;
  /// Number of batches that each worker reads ahead.
  int prefetch_factor = 2;
  /// Seed of the shuffle and of the seeds in SampleContext. Must be the same on every rank.
  std::uint64_t seed = 0;
  /// Combines samples into a batch; called by the workers. If not set, the data set's get_batch() creates the
  /// batch.
  CollateFunction collate = nullptr;
  /// Device of the batches. They are built on the CPU and copied when they are returned.
  at::Device device = at::Device(at::kCPU);
  /// A custom order; must be the same on every rank. Loaders may share it.
  std::shared_ptr<const Sampler> sampler = nullptr;
  /// Custom batches; must be the same on every rank. Replaces batch_size, shuffle, drop_last and sampler,
  /// which keep their defaults. Rank r of N reads the batches r, r + N, ...; whole batches are repeated to
  /// give the ranks the same number. Loaders may share it.
  std::shared_ptr<const BatchSampler> batch_sampler = nullptr;
  /// The workers put the batches into page-locked memory, from which copies to a GPU are asynchronous to the
  /// host. Has no effect without a CUDA device.
  bool pin_memory = false;
  /// The workers copy the batches to a CUDA `device`, from page-locked memory and on a separate stream, in
  /// parallel with the computation; the stream that is current when a batch is returned waits for its copy.
  /// num_workers * prefetch_factor batches take memory on the device. Has no effect on the CPU.
  bool non_blocking = false;
  /// Keep the worker threads between passes. Otherwise each pass starts its own.
  bool persistent_workers = true;
  /// Called once in each worker thread before it reads, with the worker's number from 0. An exception is
  /// rethrown by the range-for as a DataError.
  std::function<void(int worker)> worker_init = nullptr;
};

/// The position of a loader, independent of the number of ranks; what a checkpoint stores.
struct DataLoaderState {
  /// The seed of the order; checked when the state is loaded.
  std::uint64_t seed = 0;
  /// The epoch of the position, from 0.
  std::int64_t epoch = 0;
  /// The number of samples of the epoch's order that all ranks together have consumed; samples that were
  /// repeated to make batches even, or that workers read ahead, do not count. With a batch_sampler the number
  /// of batches; for a stream the number of this rank's batches.
  std::int64_t samples = 0;
  /// fingerprint() of the data set or the stream.
  std::string dataset = {};
  /// Sampler::kind() of the order; not checked if empty. "stream" for a stream.
  std::string order = {};
  /// For a stream: the read positions, as one line of JSON per rank. state() returns this rank's line only; a
  /// checkpoint contains those of all ranks, in rank order.
  std::vector<std::string> parts = {};
};

/// Reads a data set in batches, in the calling thread or in worker threads that read ahead.
///
///     DataLoader loader(dataset, {.batch_size = 32, .shuffle = true, .num_workers = 2});
///     for (auto& batch : loader) step(batch["image"], batch["label"]);   // one epoch
///
/// *Passes and epochs.* A range-for is one pass: from the current position to the end of the epoch. A
/// finished pass increments the epoch, so that the next range-for uses the next epoch's order; `set_epoch`
/// selects another epoch. A pass that was left with `break` keeps its position: the next range-for continues
/// with the batch after the last one returned, and `rewind()` restarts the epoch. If it was left at the very
/// last batch, the next pass is empty and ends the epoch.
///
/// *Workers.* Batches arrive in order and are the same for any `num_workers`; at most num_workers *
/// prefetch_factor are being read or waiting. Leaving the loop in the middle of an epoch discards what was
/// read ahead, after waiting for the batches that are currently being read. Destroying the loader ends the
/// threads. Workers run LibTorch's kernels on one core each. Gradients are not recorded while loading, with
/// or without workers.
///
/// *Rows.* Every batch has the source of its rows (Batch::indices) and marks rows that were only repeated to
/// give the ranks equal batches (Batch::valid).
///
/// *Streams.* A loader of a StreamDataset is the counterpart of torch's DataLoader over an IterableDataset.
/// Each worker of each rank reads its own part (without workers a rank is one part). Batches come from the
/// parts in turn, and finished parts are skipped: the order depends on the number of workers, but not on
/// timing. The last batch of each part is smaller, or dropped with drop_last. With even_batches, ranks end
/// together: each part completes its last batch with its own first samples, and a rank that has finished
/// repeats its first batch until the others have finished; with drop_last, all ranks end with the first one.
/// The ranks exchange three numbers per batch for this, so passes are *Collective*. With dispatch_batches,
/// rank 0 reads a batch for each rank, joins them and sends slices, which is *Collective* too; the last one
/// is completed with the first samples. Batch::indices is empty. At least one batch is read ahead even
/// without workers, so that the last one is recognized; with gradient accumulation, one window of batches.
///
/// *Errors.* An exception of a data set or a collate function is rethrown by the range-for as a DataError
/// when it is that batch's turn. Its text names the epoch, the batch and its samples, and the original
/// exception is nested. The position stays before that batch.
///
/// Everything is *Local*, except for streams as described above. A loader and its iterators belong to one
/// thread at a time. It can be moved, not copied; a moved-from loader may only be assigned to or destroyed.
class DataLoader {
 public:
  class Iterator;
  class Position;

  /// Shares `dataset`. Throws UsageError if it is null, an option is out of range, the sampler was created
  /// for a data set of another length, or a batch_sampler is combined with options that it replaces.
  explicit DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options = {});
  /// The same for a stream, which has its own order: also throws UsageError for shuffle and samplers.
  explicit DataLoader(std::shared_ptr<const StreamDataset> stream, DataLoaderOptions options = {});
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  /// Begins a pass, starts the workers and reads the first batch. Stops an unfinished pass of this loader:
  /// there is one at a time.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// The number of batches of this rank in a whole epoch; for a stream, as expected from its size(). Throws
  /// UsageError for a stream of unknown size.
  std::int64_t size() const;
  /// Whether size() is known.
  bool has_size() const noexcept;
  /// Whether the loader reads a stream.
  bool is_stream() const noexcept;

  /// Moves to the start of an epoch. Setting the current epoch again keeps the position, so that a resumed
  /// run may call it at the top of its loop; another epoch stops a pass in progress. Throws UsageError for a
  /// negative epoch.
  void set_epoch(std::int64_t epoch);
  /// The epoch of the pass in progress, otherwise of the next one.
  std::int64_t epoch() const;

  /// Batches of this epoch returned so far, 0 to size(): size() minus the remaining ones. For a stream: the
  /// number of batches returned.
  std::int64_t position() const;

  /// Skips the next `count` batches of this rank without reading them (those of a stream are read), and stops
  /// a pass in progress. With several ranks, every rank must skip the same number. Throws UsageError for
  /// fewer than 0 or more than remain.
  void skip_batches(std::int64_t count);

  /// Restarts the current epoch, and stops a pass in progress.
  void rewind();

  /// The whole data set, even if the loader reads one rank's share; lives at least as long as the loader.
  /// Throws UsageError for a loader of a stream.
  const Dataset& dataset() const;
  /// Samples per batch of this rank; 0 with a batch_sampler.
  std::int64_t batch_size() const;
  /// Samples per global batch, which all ranks read at the same time; 0 with a batch_sampler.
  std::int64_t total_batch_size() const;
  /// The options that it was created with.
  const DataLoaderOptions& options() const;

  /// The same loader for one of `num_replicas` ranks, which together read the data set once per epoch,
  /// sharded according to `how`, with its batches on `device`. It starts at this loader's position. This
  /// loader does not change. Throws UsageError for a rank out of range, a batch size that cannot be split
  /// (that of a batch_sampler never can), or a loader (or sampler) that is already sharded.
  [[nodiscard]] DataLoader shard(int num_replicas, int rank, at::Device device = at::Device(at::kCPU),
                                 const ShardingOptions& how = {}) const;
  /// The same for the ranks of a group. A stream needs the group for even_batches and dispatch_batches, in
  /// which ranks communicate.
  [[nodiscard]] DataLoader shard(const ProcessGroup& group, at::Device device,
                                 const ShardingOptions& how = {}) const;

  /// A loader of the same data set and the whole order with other options, at the same position. This loader
  /// does not change. Throws UsageError as the constructor does, for a loader that is already sharded, and in
  /// the middle of an epoch if only one of the two has a batch_sampler.
  [[nodiscard]] DataLoader with_options(DataLoaderOptions options) const;

  /// The current position. Exact in the middle of an epoch: inside the loop over a batch, that batch counts
  /// as consumed.
  DataLoaderState state() const;

  /// Continues at `state` without reading the consumed samples; stops a pass in progress. The number of
  /// ranks, the batch size and the kind of sharding may differ: each sample that was not consumed is read
  /// once. Throws UsageError, and changes nothing, if the seed, the data set or the kind of order differs.
  /// The parts of a stream stay as they are until the epoch ends and are distributed over the ranks anew;
  /// some ranks may have one part more than others. With drop_last and even_batches, where all ranks end with
  /// the first one, throws UsageError if the number of parts (workers times ranks) is not a multiple of the
  /// number of ranks.
  void load_state(const DataLoaderState& state);

  /// A second handle to this loader's position, for writing checkpoints: stays valid when the loader is
  /// moved, and keeps its data set alive.
  Position position_handle() const;

 private:
  struct Core;
  class Pass;
  DataLoader() = default;
  DataLoader divided(const BatchPlanOptions& plan, at::Device device,
                     const std::optional<ProcessGroup>& group) const;
  void skip_of_stream(std::int64_t count);
  void stop_pass() noexcept;
  void end_work() noexcept;

  std::shared_ptr<Core> core_;
};

/// Progress of a pass.
struct DataLoaderProgress {
  /// Number of the pass in this process, increasing from 1.
  std::uint64_t pass = 0;
  /// Batches of the epoch returned so far, including the current one, and their total number. For a stream,
  /// the total is the largest int64 until the end is known.
  std::int64_t position = 0;
  std::int64_t size = 0;
};

/// Reads and sets the position of a loader that lives elsewhere. *Local*; only for the loader's thread.
class DataLoader::Position {
 public:
  /// As the loader's own state() and load_state().
  DataLoaderState state() const;
  void load_state(const DataLoaderState& state) const;
  /// Nothing if no pass is in progress.
  std::optional<DataLoaderProgress> progress() const;
  bool is_stream() const noexcept;

  /// For a stream: how many batches are read ahead at least (1 or more), so that progress() knows the end
  /// that many batches in advance. Takes effect in the next pass.
  void set_look_ahead(std::int64_t batches) const noexcept;

  /// ShardingOptions::even_batches of the loader. Change it only between passes.
  bool even_batches() const noexcept;
  void set_even_batches(bool even_batches) const noexcept;

 private:
  friend class DataLoader;
  explicit Position(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  void load_state_of_stream(const DataLoaderState& saved) const;

  std::shared_ptr<Core> core_;
};

/// The batches of one pass. An input iterator: it can be moved, not copied, and owns its batch until the next
/// increment. Its destructor ends the pass. If the loader was destroyed, began another pass or changed its
/// position, an increment throws UsageError.
class DataLoader::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  /// The batch; may be read, modified or moved from.
  Batch& operator*() const noexcept { return batch_; }
  Batch* operator->() const noexcept { return &batch_; }
  /// Waits for the next batch, or ends the pass after the last one. Throws DataError if that batch cannot be
  /// loaded; the pass is then over.
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& iterator, std::default_sentinel_t) noexcept {
    return !iterator.pass_;
  }

 private:
  friend class DataLoader;
  explicit Iterator(std::shared_ptr<Pass> pass);

  std::shared_ptr<Pass> pass_;
  mutable Batch batch_;
};

}  // namespace lockstep
