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

/// How a DataLoader reads.
struct DataLoaderOptions {
  /// Samples in a batch of this rank (of all ranks with ShardingOptions::split_batches). The last batch of an
  /// epoch is smaller where the samples do not divide.
  std::int64_t batch_size = 1;
  /// A new order for every epoch (see RandomSampler). Not used with a sampler of one's own.
  bool shuffle = false;
  /// Leave out the last, smaller batch; over several ranks also the samples that do not fill a batch on each.
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
  /// An order of one's own, the same on every rank. Loaders may share it.
  std::shared_ptr<const Sampler> sampler = nullptr;
  /// Batches of one's own, the same on every rank: instead of batch_size, shuffle, drop_last and sampler,
  /// which keep their defaults. Rank r of N reads the batches r, r + N, ...; batches that are repeated to
  /// make the ranks even are repeated whole. Loaders may share it.
  std::shared_ptr<const BatchSampler> batch_sampler = nullptr;
  /// The workers put the batches into page-locked memory, from which copies to a GPU run beside the host.
  /// Does nothing where there is no CUDA device.
  bool pin_memory = false;
  /// The workers copy the batches to a CUDA `device` themselves, from page-locked memory and on a stream of
  /// their own, beside the computation; the stream that is current when a batch is handed out waits for its
  /// copy. num_workers * prefetch_factor batches take memory on the device. Does nothing on the CPU.
  bool non_blocking = false;
  /// Workers live from one pass to the next, and wait in between. Otherwise each pass starts its own.
  bool persistent_workers = true;
  /// Called once in each worker thread before it reads, with the worker's number from 0. What it throws comes
  /// out of the range-for as a DataError.
  std::function<void(int worker)> worker_init = nullptr;
};

/// How far a loader has come: all that a checkpoint needs, whatever the number of ranks.
struct DataLoaderState {
  /// The seed of the order: checked when the state is loaded.
  std::uint64_t seed = 0;
  /// The epoch that the position belongs to, from 0.
  std::int64_t epoch = 0;
  /// How many samples of the epoch's order all ranks together have been handed out; samples that were
  /// repeated to make batches even, or read ahead by workers, do not count. With a batch_sampler: how many
  /// batches. Of a stream: how many batches of this rank.
  std::int64_t samples = 0;
  /// fingerprint() of the data set or the stream.
  std::string dataset = {};
  /// Sampler::kind() of the order; empty is not checked. "stream" for a stream.
  std::string order = {};
  /// Of a stream: where it is being read, as one line of JSON for each rank. state() gives the rank's own
  /// alone, a checkpoint those of all ranks, in their order.
  std::vector<std::string> parts = {};
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
/// prefetch_factor are being read or wait. Leaving the loop in the middle of an epoch drops what was read
/// ahead; that waits for the batches that are being read at that moment. Destroying the loader ends the
/// threads. Workers run LibTorch's kernels on one core each, and no gradient is recorded while loading, in
/// workers or without.
///
/// *Rows.* Every batch carries where its rows came from (Batch::indices) and which of them were only repeated
/// so that the ranks have equal batches (Batch::valid).
///
/// *Streams.* A loader of a StreamDataset is torch's DataLoader of an IterableDataset. Each worker of each
/// rank reads a part of its own (without workers a rank is one part), batches come from the parts in turn,
/// and a part that has come to its end is passed over: so the order depends on the number of workers, but not
/// on time. The last batch of each part is smaller, or dropped with drop_last. Ranks with even_batches end
/// together: each part completes its last batch with its own first samples, and a rank that has come to its
/// end repeats its first batch until the others have, or, with drop_last, all end with the first. For that
/// they exchange three numbers for each batch, so passes are *Collective*. With dispatch_batches rank 0 reads
/// a batch for each rank, joins them and sends slices, which is *Collective* too; the last one is completed
/// with the first samples. Batch::indices is empty. One batch is read ahead even without workers, so that the
/// last one is known as such, and as many as a window of gradient accumulation has.
///
/// *Errors.* What a data set or a collate function throws comes out of the range-for as a DataError at the
/// turn of its batch, with the epoch, the batch and its samples in the text and the first exception nested.
/// The position stays before that batch.
///
/// All but streams as said is *Local*. A loader and its iterators belong to one thread at a time. It can be
/// moved, not copied; a loader that was moved from may only be assigned to or destroyed.
class DataLoader {
 public:
  class Iterator;
  class Position;

  /// Shares `dataset`. Throws UsageError for no data set, for an option out of range, when the sampler was
  /// made for a data set of another length, or for a batch_sampler beside options that it replaces.
  explicit DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options = {});
  /// The same for a stream, which has its own order: throws UsageError for shuffle and samplers too.
  explicit DataLoader(std::shared_ptr<const StreamDataset> stream, DataLoaderOptions options = {});
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  /// Begins a pass, starts the workers and reads its first batch. A pass of this loader that is still under
  /// way is stopped: one at a time.
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  /// The number of batches in a whole epoch of this rank; of a stream what its size() lets expect. Throws
  /// UsageError for a stream that does not know its size.
  std::int64_t size() const;
  /// Whether size() is known.
  bool has_size() const noexcept;
  /// Whether it reads a stream.
  bool is_stream() const noexcept;

  /// Goes to the start of an epoch; the current epoch named again keeps the position, so that a resumed run
  /// may call it at the top of its loop. Another epoch stops a pass under way. Throws UsageError for a
  /// negative epoch.
  void set_epoch(std::int64_t epoch);
  /// The epoch of the pass under way, else of the next one.
  std::int64_t epoch() const;

  /// Batches of this epoch handed out so far, 0 to size(): size() less those that are left. Of a stream: how
  /// many were handed out.
  std::int64_t position() const;

  /// Passes over the next `count` batches of this rank without reading them (of a stream they are read), and
  /// stops a pass under way. With
  /// several ranks every rank must skip as many. Throws UsageError for fewer than 0 or more than are left.
  void skip_batches(std::int64_t count);

  /// Starts the current epoch again, and stops a pass under way.
  void rewind();

  /// The whole data set, also for a loader that reads one rank's part; lives at least as long as the loader.
  /// Throws UsageError for a loader of a stream.
  const Dataset& dataset() const;
  /// Samples in a batch of this rank; 0 with a batch_sampler.
  std::int64_t batch_size() const;
  /// Samples in the batches that all ranks read at the same time; 0 with a batch_sampler.
  std::int64_t total_batch_size() const;
  /// The options that it was made with.
  const DataLoaderOptions& options() const;

  /// The same loader for one of `num_replicas` ranks, which together read the data set once an epoch, divided
  /// as `how` says, with its batches on `device`. The position goes over. This loader stays as it is. Throws
  /// UsageError for a rank out of range, a batch size that cannot be split (that of a batch_sampler never
  /// can), or a loader (or a sampler) that is divided already.
  [[nodiscard]] DataLoader shard(int num_replicas, int rank, at::Device device = at::Device(at::kCPU),
                                 const ShardingOptions& how = {}) const;
  /// The same for the ranks of a group. A stream needs it for even_batches and dispatch_batches, by which
  /// ranks talk to each other.
  [[nodiscard]] DataLoader shard(const ProcessGroup& group, at::Device device,
                                 const ShardingOptions& how = {}) const;

  /// A loader of the same data set and of the whole order with other options, at the same position. This one
  /// stays as it is. Throws UsageError as the constructor does, for a loader that is divided already, and in
  /// the middle of an epoch where one of the two has a batch_sampler and the other has none.
  [[nodiscard]] DataLoader with_options(DataLoaderOptions options) const;

  /// Exact in the middle of an epoch: inside the loop over a batch, that batch counts as consumed.
  DataLoaderState state() const;

  /// Continues where `state` was taken, in no time; stops a pass under way. The number of ranks, the batch
  /// size and the way of dividing may all be others: the samples that were not consumed are read, each once.
  /// Throws UsageError, and changes nothing, when the seed, the data set or the kind of order is another. The
  /// parts of a stream keep on being what they were until the epoch ends, and are dealt to the ranks
  /// anew; some ranks may have one more to read than others. With drop_last, by which ranks end with the
  /// first, UsageError where the parts, workers times ranks, are no multiple of the ranks that there are.
  void load_state(const DataLoaderState& state);

  /// A second hold on this loader's position, for whoever writes checkpoints: it stays good when the loader
  /// is moved, and keeps its data set alive.
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

/// Where a pass under way is.
struct DataLoaderProgress {
  /// Passes of this process have growing numbers, from 1.
  std::uint64_t pass = 0;
  /// Batches of the epoch handed out so far, the present one among them, and all of them: of a stream the
  /// largest number that there is, until its end is in sight.
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
  bool is_stream() const noexcept;

  /// Of a stream: how many batches are read ahead at least (1, and never fewer), so that progress() knows the
  /// end so much before it comes. From the next pass on.
  void set_look_ahead(std::int64_t batches) const noexcept;

  /// ShardingOptions::even_batches of the loader. To be changed between passes only.
  bool even_batches() const noexcept;
  void set_even_batches(bool even_batches) const noexcept;

 private:
  friend class DataLoader;
  explicit Position(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  void load_state_of_stream(const DataLoaderState& saved) const;

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
