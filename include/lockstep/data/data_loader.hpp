#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/data/batch.hpp"
#include "lockstep/data/collate.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/sampler.hpp"

namespace lockstep {

/// How a DataLoader reads.
struct DataLoaderOptions {
  /// Samples in a batch of this rank. The last batch of an epoch is smaller where the samples do not divide.
  std::int64_t batch_size = 1;
  /// A new order for every epoch (see DistributedSampler). Not used with a sampler of one's own.
  bool shuffle = false;
  /// Leave out the last, smaller batch; over several ranks also the samples that do not divide between the
  /// ranks.
  bool drop_last = false;
  /// Threads that read ahead. 0 reads in the thread that asks for the batch.
  int num_workers = 0;
  /// Batches read ahead by each worker.
  int prefetch_factor = 2;
  /// Drives the order of a shuffle and the seeds in SampleContext. Must be the same on every rank.
  std::uint64_t seed = 0;
  /// How samples become a batch, called by the workers. Without one the data set's get_batch() makes the
  /// batch.
  CollateFunction collate = nullptr;
  /// Where the batches are put. They are made on the CPU, and copied when they are handed out.
  at::Device device = at::Device(at::kCPU);
  /// An order of one's own. The loader shares it and moves its position: give it to one loader only.
  std::shared_ptr<Sampler> sampler = nullptr;
};

/// How far a loader has come, as plain numbers that a checkpoint can hold.
struct DataLoaderState {
  /// The sampler's seed: checked when the state is loaded.
  std::uint64_t seed = 0;
  /// The epoch that the position belongs to, from 0.
  std::int64_t epoch = 0;
  /// Batches of one rank that were handed out in this epoch; what workers had read ahead does not count.
  std::int64_t position = 0;
  /// The size of the whole data set.
  std::int64_t length = 0;
  /// The units of `position`: a global batch is batch_size * num_replicas samples.
  std::int64_t batch_size = 1;
  int num_replicas = 1;
};

/// Reads a data set in batches, in this thread or in worker threads that read ahead.
///
///     DataLoader loader(dataset, {.batch_size = 32, .shuffle = true, .num_workers = 2});
///     for (auto& batch : loader) step(batch["image"], batch["label"]);   // one epoch
///
/// *Passes and epochs.* A range-for is one pass: from the present position to the end of the epoch. A
/// finished pass raises the epoch by one, so that the next range-for has the next order by itself;
/// `set_epoch` names another epoch. A pass that was left with `break` keeps its position: the next range-for
/// goes on with the batch after the last one seen, and `rewind()` starts the epoch again. Left at the very
/// last batch, the next pass is empty and ends the epoch.
///
/// *Workers.* Batches come in order, the same ones whatever `num_workers` is; at most num_workers *
/// prefetch_factor are being read or wait. Leaving the loop, or destroying the loader in the middle of an
/// epoch, drops what was read ahead and ends the threads; that waits for the batches that they are reading at
/// that moment. Workers run LibTorch's kernels on one core each, and no gradient is recorded while loading,
/// in workers or without.
///
/// *Errors.* What a data set or a collate function throws comes out of the range-for as a DataError at the
/// turn of its batch, with the epoch, the batch and its samples in the text and the first exception nested.
/// The position stays before that batch.
///
/// Everything is *Local*. A loader and its iterators belong to one thread at a time. It can be moved, not
/// copied; a loader that was moved from may only be assigned to or destroyed.
class DataLoader {
 public:
  class Iterator;
  class Position;

  /// Shares `dataset`. Throws UsageError for no data set, for an option out of range, or when the sampler was
  /// made for a data set of another length.
  explicit DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options = {});
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  /// Begins a pass, starts the workers and reads its first batch. A pass of this loader that is still under
  /// way is stopped: one at a time.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// The number of batches in a whole epoch of this rank.
  std::int64_t size() const;

  /// Goes to the start of an epoch; the current epoch named again keeps the position (see
  /// Sampler::set_epoch). Another epoch stops a pass under way. Throws UsageError for a negative epoch.
  void set_epoch(std::int64_t epoch);
  /// The epoch of the pass under way, else of the next one.
  std::int64_t epoch() const;

  /// Batches of this epoch handed out so far, 0 to size().
  std::int64_t position() const;

  /// Starts the current epoch again, and stops a pass under way.
  void rewind();

  /// The whole data set, also for a loader that reads one rank's part; lives at least as long as the loader.
  const Dataset& dataset() const;
  /// Samples in a batch of this rank.
  std::int64_t batch_size() const;
  /// The options that it was made with.
  const DataLoaderOptions& options() const;

  /// The same loader for one of `num_replicas` ranks, which together read the data set once an epoch, with
  /// its batches on `device`: it has a DistributedSampler of the same seed and epoch, and `batch_size` counts
  /// for each rank. The position goes over where it is a whole number of global batches. This loader stays as
  /// it is. Throws UsageError for several ranks and a loader with a sampler of its own, a rank out of range,
  /// or a position that does not divide.
  DataLoader shard(int num_replicas, int rank, at::Device device = at::Device(at::kCPU)) const;

  /// Exact in the middle of an epoch: inside the loop over batch k (counted from 0), `position` is k + 1.
  DataLoaderState state() const;

  /// Continues where `state` was taken; stops a pass under way. Another number of ranks or another batch size
  /// may go on where the samples consumed are a whole number of the new global batches. Throws UsageError,
  /// and changes nothing, otherwise, and when the seed or the length of the data set differ.
  void load_state(const DataLoaderState& state);

  /// A second hold on this loader's position, for whoever writes checkpoints: it stays good when the loader
  /// is moved, and keeps its data set alive.
  Position position_handle() const;

 private:
  struct Core;
  class Pass;
  DataLoader() = default;
  void stop_pass() noexcept;

  std::shared_ptr<Core> core_;
};

/// Where a pass under way is.
struct DataLoaderProgress {
  /// Passes of this process have growing numbers, from 1.
  std::uint64_t pass = 0;
  /// Batches of the epoch handed out so far, the present one among them, and all of them.
  std::int64_t position = 0;
  std::int64_t size = 0;
};

/// Reads and sets the position of a loader that lives elsewhere. *Local*; for the loader's thread.
class DataLoader::Position {
 public:
  /// As the loader's own state() and load_state().
  DataLoaderState state() const;
  void load_state(const DataLoaderState& state) const;
  /// Nothing when no pass is under way.
  std::optional<DataLoaderProgress> progress() const;

 private:
  friend class DataLoader;
  explicit Position(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  std::shared_ptr<Core> core_;
};

/// The batches of one pass. An input iterator: it can be moved, not copied, and the batch is its own until
/// the next increment. Its destructor ends the pass and its workers. After the loader has gone, or has begun
/// another pass or moved its position, an increment throws UsageError.
class DataLoader::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  /// The batch, to be read, changed or moved out.
  Batch& operator*() const noexcept { return batch_; }
  Batch* operator->() const noexcept { return &batch_; }
  /// Waits for the next batch, or ends the pass after the last one. Throws DataError when that batch cannot
  /// be loaded; the pass is over then.
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
