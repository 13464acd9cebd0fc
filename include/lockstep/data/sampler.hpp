#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// The order in which the samples of a data set are read.
///
/// A custom sampler derives from this class and implements three methods. It stores no position, so that
/// loaders may share it. All methods are const, *Local*, and may be called by several threads at once.
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// The number of indices per epoch.
  virtual std::int64_t size() const = 0;

  /// The size() indices of an epoch, in order. Pure: depends only on the epoch, and is the same on every rank
  /// (a loader shards the order itself). Throws UsageError for a negative epoch.
  virtual std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const = 0;

  /// The kind of the order, in a word or two. Saved with a loader's position; a loader of another kind
  /// rejects the position.
  virtual std::string kind() const = 0;

  /// The number of ranks that the indices are already sharded over; 1 for an order of all samples.
  virtual int num_replicas() const { return 1; }

  /// The size of the data set that the indices refer to.
  std::int64_t length() const noexcept { return length_; }
  /// The seed of the order.
  std::uint64_t seed() const noexcept { return seed_; }

 protected:
  /// Throws UsageError if `length` is negative.
  Sampler(std::int64_t length, std::uint64_t seed);
  Sampler(const Sampler&) = default;
  Sampler& operator=(const Sampler&) = default;

  /// `seed` + `epoch`, the seed of the epoch's generator. Throws UsageError for a negative epoch, or if the
  /// sum exceeds 2^64 - 1.
  std::uint64_t epoch_seed(std::int64_t epoch) const;

 private:
  std::int64_t length_;
  std::uint64_t seed_;
};

/// The samples of each batch of an epoch: what PyTorch's DataLoader takes as `batch_sampler`. The batches may
/// differ in size.
///
/// A custom batch sampler derives from this class and implements three methods. It stores no position, so
/// that loaders may share it. All methods are const, *Local*, and may be called by several threads at once.
class BatchSampler {
 public:
  virtual ~BatchSampler() = default;

  /// The number of batches, the same in each epoch.
  virtual std::int64_t size() const = 0;

  /// The indices of each batch of an epoch: size() batches, none of them empty. Pure: depends only on the
  /// epoch, and is the same on every rank (a loader distributes the batches itself).
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
  /// Draw with replacement: an index may occur several times or not at all.
  bool replacement = false;
  /// Indices per epoch; 0: the number of samples.
  std::int64_t num_samples = 0;
};

/// A new order in each epoch: index for index PyTorch's RandomSampler with a generator of seed `seed +
/// epoch`.
class RandomSampler final : public Sampler {
 public:
  /// Throws UsageError if num_samples is negative, or above 0 for an empty data set.
  explicit RandomSampler(std::int64_t length, RandomSamplerOptions options = {});

  /// num_samples, or the length. If it exceeds the length without replacement, the order is several
  /// permutations in sequence.
  std::int64_t size() const override { return size_; }
  /// Takes 8 bytes per index.
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override { return options_.replacement ? "random with replacement" : "random"; }

 private:
  RandomSamplerOptions options_;
  std::int64_t size_;
};

struct WeightedSamplerOptions {
  /// Indices per epoch; 0: the number of weights.
  std::int64_t num_samples = 0;
  /// If false, an index occurs at most once.
  bool replacement = true;
  /// As RandomSamplerOptions::seed.
  std::uint64_t seed = 0;
};

/// Draws index i with a probability proportional to `weights[i]`: index for index PyTorch's
/// WeightedRandomSampler with a generator of seed `seed + epoch`.
class WeightedRandomSampler final : public Sampler {
 public:
  /// One weight per sample of the data set. Throws UsageError for a weight that is negative or not finite, if
  /// all are 0, or for more indices without replacement than there are weights above 0.
  explicit WeightedRandomSampler(std::vector<double> weights, WeightedSamplerOptions options = {});

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  /// With a checksum of the weights.
  std::string kind() const override;

 private:
  std::vector<double> weights_;
  WeightedSamplerOptions options_;
  std::int64_t size_;
};

/// The given indices in a new order in each epoch: PyTorch's SubsetRandomSampler with a generator of seed
/// `seed + epoch`.
class SubsetRandomSampler final : public Sampler {
 public:
  /// `length` is the size of the whole data set. Throws UsageError for an index out of its range.
  SubsetRandomSampler(std::int64_t length, std::vector<std::int64_t> indices, std::uint64_t seed = 0);

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  /// With a checksum of the indices.
  std::string kind() const override;

 private:
  std::vector<std::int64_t> indices_;
};

struct LengthGroupedOptions {
  /// Size of the batches that should have samples of similar length: the global batch, over all ranks.
  std::int64_t batch_size = 1;
  /// As RandomSamplerOptions::seed.
  std::uint64_t seed = 0;
  /// Number of batches that are sorted together; 0: samples / (4 * batch_size), but at least 1 and at most
  /// 50.
  std::int64_t mega_batch_mult = 0;
};

/// Groups samples of similar length, in an otherwise random order that begins with the longest sample: index
/// for index Hugging Face's LengthGroupedSampler (`group_by_length`) with a generator of seed `seed + epoch`.
/// Reduces padding.
class LengthGroupedSampler final : public Sampler {
 public:
  /// `lengths[i]` is the length of sample i, for example in tokens. Throws UsageError for options out of
  /// range.
  LengthGroupedSampler(std::vector<std::int64_t> lengths, LengthGroupedOptions options);

  std::int64_t size() const override { return length(); }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  /// With the number of samples that are sorted together: another one is another order.
  std::string kind() const override;

 private:
  std::vector<std::int64_t> lengths_;
  LengthGroupedOptions options_;
};

/// The arguments of PyTorch's DistributedSampler, with the same names.
struct DistributedSamplerOptions {
  /// Number of ranks, and this rank: 0 <= rank < num_replicas.
  int num_replicas = 1;
  int rank = 0;
  /// A new order in each epoch, the same on every rank: torch.randperm with the seed `seed + epoch`.
  bool shuffle = true;
  /// Must be the same on every rank. `seed + epoch` must stay below 2^64.
  std::uint64_t seed = 0;
  /// Drop the last samples if the length is not divisible by num_replicas, instead of repeating the first
  /// ones.
  bool drop_last = false;
};

/// Shards a data set: index for index the counterpart of PyTorch's torch.utils.data.DistributedSampler. For
/// your own loops; a DataLoader shards in the same way itself (DataLoader::shard).
///
/// Every rank gets the same number of indices: rank r takes r, r + num_replicas, r + 2 num_replicas, ... of
/// the epoch's order. If the length is not divisible, the order is first extended with its own beginning (as
/// often as needed), or truncated with drop_last. With drop_last, a data set with fewer samples than ranks
/// gives size() 0. An empty data set gives an empty epoch.
class DistributedSampler final : public Sampler {
 public:
  /// `length` is the size of the data set. Throws UsageError for a rank or a number of replicas out of range.
  explicit DistributedSampler(std::int64_t length, DistributedSamplerOptions options = {});

  /// ceil(length / num_replicas), or floor(length / num_replicas) with drop_last: the same on every rank.
  std::int64_t size() const override { return size_; }
  /// Throws UsageError for a negative epoch, or if seed + epoch exceeds 2^64 - 1 with shuffle. A shuffle
  /// takes 8 bytes per sample of the data set while it runs.
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override;
  std::string kind() const override;
  int num_replicas() const override { return options_.num_replicas; }
  /// The options that it was created with.
  const DistributedSamplerOptions& options() const noexcept { return options_; }

 private:
  DistributedSamplerOptions options_;
  std::int64_t size_;
};

}  // namespace lockstep
