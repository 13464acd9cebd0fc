#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// How far a sampler has come, as plain numbers that a checkpoint can hold.
struct SamplerState {
  /// The seed and the data set's length that the position belongs to: checked when it is loaded.
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  /// Samples of this rank consumed in this epoch.
  std::int64_t position = 0;
  std::int64_t length = 0;
};

/// In which order the samples of a data set are read, and how far the reading has come.
///
/// A sampler of one's own derives from it and writes size() and epoch_indices(); the epoch and the position
/// within it are kept here. Everything is *Local*. One thread at a time.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// The number of indices that one epoch gives to this rank.
  virtual std::int64_t size() const = 0;

  /// The indices of this rank in the given epoch, size() of them, in order. Pure: it depends on the epoch
  /// alone.
  virtual std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const = 0;

  /// All indices of the current epoch, whatever the position.
  std::vector<std::int64_t> indices() const { return epoch_indices(epoch_); }

  /// The indices of the current epoch that are not consumed yet.
  std::vector<std::int64_t> remaining() const;

  /// Goes to the start of another epoch. The current epoch named again changes nothing, so that a resumed run
  /// that calls it at the top of its loop keeps its position. Throws UsageError for a negative epoch.
  void set_epoch(std::int64_t epoch);

  /// Starts the current epoch again.
  void rewind() noexcept { position_ = 0; }

  /// Goes to the start of the epoch after this one.
  void finish_epoch() { set_epoch(epoch_ + 1); }

  /// Marks the next `count` samples as consumed. Throws UsageError for fewer than none or more than are left.
  void advance(std::int64_t count);

  std::int64_t epoch() const noexcept { return epoch_; }
  /// Samples of this rank consumed in this epoch, 0 to size().
  std::int64_t position() const noexcept { return position_; }
  /// The size of the whole data set.
  std::int64_t length() const noexcept { return length_; }
  std::uint64_t seed() const noexcept { return seed_; }

  SamplerState state() const { return {seed_, epoch_, position_, length_}; }

  /// Continues where `state` was taken. Throws UsageError, and changes nothing, when the seed or the length
  /// of the data set differ (another order would be continued) or a number is out of range.
  void load_state(const SamplerState& state);

 protected:
  /// `length` is the size of the whole data set. Throws UsageError when it is negative.
  Sampler(std::int64_t length, std::uint64_t seed);
  Sampler(const Sampler&) = default;
  Sampler& operator=(const Sampler&) = default;

 private:
  std::int64_t length_;
  std::uint64_t seed_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
};

/// The arguments of PyTorch's DistributedSampler under its names.
struct DistributedSamplerOptions {
  /// Between how many ranks the data set is divided, and which of them this one is: 0 <= rank < num_replicas.
  int num_replicas = 1;
  int rank = 0;
  /// A new order for every epoch, the same on every rank: torch.randperm with the seed `seed + epoch`.
  bool shuffle = true;
  /// Must be the same on every rank. `seed + epoch` must stay below 2^64.
  std::uint64_t seed = 0;
  /// Drop the tail of the data set that does not divide by num_replicas, instead of repeating its first
  /// samples.
  bool drop_last = false;
};

/// Divides a data set between ranks: index for index what PyTorch's torch.utils.data.DistributedSampler
/// gives.
///
/// Every rank gets equally many indices: rank r takes r, r + num_replicas, r + 2 num_replicas, ... of the
/// epoch's order. Where the length does not divide, the order is first filled up with its own beginning (as
/// often as needed), or cut with drop_last. A data set with fewer samples than ranks gives, with drop_last,
/// nothing at all: size() is 0. An empty data set is an empty epoch.
class DistributedSampler final : public Sampler {
 public:
  /// `length` is the size of the data set. Throws UsageError for a rank or a number of replicas out of range.
  explicit DistributedSampler(std::int64_t length, DistributedSamplerOptions options = {});

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  const DistributedSamplerOptions& options() const noexcept { return options_; }

 private:
  DistributedSamplerOptions options_;
  std::int64_t size_;
};

}  // namespace lockstep
