#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// In which order the samples of a data set are read.
///
/// A sampler of one's own derives from it and writes three methods. It holds no position: loaders may share
/// it. All methods are const, *Local*, and may be called by several threads at once.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// The number of indices that one epoch gives.
  virtual std::int64_t size() const = 0;

  /// The indices of the given epoch, size() of them, in order. Pure: it depends on the epoch alone, and gives
  /// the same on every rank (a loader divides the order between the ranks itself). Throws UsageError for a
  /// negative epoch.
  virtual std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const = 0;

  /// What kind of order this is, in a word or two. Kept with a loader's position, which is refused by a
  /// loader of another kind.
  virtual std::string kind() const = 0;

  /// How many ranks the indices are divided between already; 1 for an order of all samples.
  virtual int num_replicas() const { return 1; }

  /// The size of the data set that the indices belong to.
  std::int64_t length() const noexcept { return length_; }
  /// What the order depends on beside the epoch.
  std::uint64_t seed() const noexcept { return seed_; }

 protected:
  /// Throws UsageError when `length` is negative.
  Sampler(std::int64_t length, std::uint64_t seed);
  Sampler(const Sampler&) = default;
  Sampler& operator=(const Sampler&) = default;

  /// `seed` + `epoch`, the seed of the epoch's generator. Throws UsageError for a negative epoch, or when the
  /// sum passes 2^64 - 1.
  std::uint64_t epoch_seed(std::int64_t epoch) const;

 private:
  std::int64_t length_;
  std::uint64_t seed_;
};

/// Which samples make each batch of an epoch: what PyTorch's DataLoader takes as `batch_sampler`. The batches
/// may differ in size.
///
/// A batch sampler of one's own derives from it and writes three methods. It holds no position: loaders may
/// share it. All methods are const, *Local*, and may be called by several threads at once.
class BatchSampler {
 public:
  virtual ~BatchSampler() = default;

  /// The number of batches, the same in each epoch.
  virtual std::int64_t size() const = 0;

  /// The indices of each batch of the given epoch, size() batches, none of them empty. Pure: it depends on
  /// the epoch alone, and gives the same on every rank (a loader divides the batches between the ranks
  /// itself).
  virtual std::vector<std::vector<std::int64_t>> epoch_batches(std::int64_t epoch) const = 0;

  /// As Sampler::kind().
  virtual std::string kind() const = 0;
};

/// 0, 1, 2, ...: PyTorch's SequentialSampler.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t length) : Sampler(length, 0) {}

  std::int64_t size() const override { return length(); }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override { return "sequential"; }
};

struct RandomSamplerOptions {
  /// Must be the same on every rank. `seed + epoch` must stay below 2^64, here and in all samplers below.
  std::uint64_t seed = 0;
  /// Draw each index anew, so that some come several times and others not at all.
  bool replacement = false;
  /// Indices in an epoch; 0: as many as the data set has samples.
  std::int64_t num_samples = 0;
};

/// A new order for every epoch: index for index PyTorch's RandomSampler with a generator of the seed
/// `seed + epoch`.
class RandomSampler final : public Sampler {
 public:
  /// Throws UsageError when num_samples is negative, or more than 0 of an empty data set.
  explicit RandomSampler(std::int64_t length, RandomSamplerOptions options = {});

  /// num_samples, or the length. More than the length without replacement: one permutation after another.
  std::int64_t size() const override { return size_; }
  /// Takes 8 bytes for every index.
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override { return options_.replacement ? "random with replacement" : "random"; }

 private:
  RandomSamplerOptions options_;
  std::int64_t size_;
};

struct WeightedSamplerOptions {
  /// Indices in an epoch; 0: as many as there are weights.
  std::int64_t num_samples = 0;
  /// Without it an index comes at most once.
  bool replacement = true;
  /// As RandomSamplerOptions::seed.
  std::uint64_t seed = 0;
};

/// Draws index i with a probability in proportion to `weights[i]`: index for index PyTorch's
/// WeightedRandomSampler with a generator of the seed `seed + epoch`.
class WeightedRandomSampler final : public Sampler {
 public:
  /// One weight for each sample of the data set. Throws UsageError for a weight that is negative or not
  /// finite, when all are 0, or for more indices without replacement than there are weights above 0.
  explicit WeightedRandomSampler(std::vector<double> weights, WeightedSamplerOptions options = {});

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override { return "weighted"; }

 private:
  std::vector<double> weights_;
  WeightedSamplerOptions options_;
  std::int64_t size_;
};

/// The given indices in a new order for every epoch: PyTorch's SubsetRandomSampler with a generator of the
/// seed `seed + epoch`.
class SubsetRandomSampler final : public Sampler {
 public:
  /// `length` is the size of the whole data set. Throws UsageError for an index out of its range.
  SubsetRandomSampler(std::int64_t length, std::vector<std::int64_t> indices, std::uint64_t seed = 0);

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override { return "random subset"; }

 private:
  std::vector<std::int64_t> indices_;
};

struct LengthGroupedOptions {
  /// The batches that are to be of one length: the global batch, over all ranks.
  std::int64_t batch_size = 1;
  /// As RandomSamplerOptions::seed.
  std::uint64_t seed = 0;
  /// How many batches are sorted together; 0: min(samples / (4 batches), 50), and at least 1.
  std::int64_t mega_batch_mult = 0;
};

/// Samples of nearly the same length stand together, in an order that is random otherwise, and the longest of
/// all comes first: index for index Hugging Face's LengthGroupedSampler (`group_by_length`) with a generator
/// of the seed `seed + epoch`. Saves padding.
class LengthGroupedSampler final : public Sampler {
 public:
  /// `lengths[i]` is the length of sample i, in tokens for example. Throws UsageError for a batch size below
  /// 1.
  LengthGroupedSampler(std::vector<std::int64_t> lengths, LengthGroupedOptions options);

  std::int64_t size() const override { return length(); }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override { return "grouped by length"; }

 private:
  std::vector<std::int64_t> lengths_;
  LengthGroupedOptions options_;
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
/// gives. For loops of one's own; a DataLoader divides the same way by itself (DataLoader::shard).
///
/// Every rank gets equally many indices: rank r takes r, r + num_replicas, r + 2 num_replicas, ... of the
/// epoch's order. Where the length does not divide, the order is first filled up with its own beginning (as
/// often as needed), or cut with drop_last. A data set with fewer samples than ranks gives, with drop_last,
/// nothing at all: size() is 0. An empty data set is an empty epoch.
class DistributedSampler final : public Sampler {
 public:
  /// `length` is the size of the data set. Throws UsageError for a rank or a number of replicas out of range.
  explicit DistributedSampler(std::int64_t length, DistributedSamplerOptions options = {});

  /// ceil(length / num_replicas), with drop_last floor(length / num_replicas): the same on every rank.
  std::int64_t size() const override { return size_; }
  /// Throws UsageError for a negative epoch, or when seed + epoch passes 2^64 - 1 in a shuffle. A shuffle
  /// takes 8 bytes for every sample of the data set while it runs.
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override;
  int num_replicas() const override { return options_.num_replicas; }
  /// The options that it was made with.
  const DistributedSamplerOptions& options() const noexcept { return options_; }

 private:
  DistributedSamplerOptions options_;
  std::int64_t size_;
};

}  // namespace lockstep
