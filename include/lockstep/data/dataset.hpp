#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// What a data set may know beside the index of the sample that it reads.
struct SampleContext {
  /// A seed for this sample's own randomness (a crop, a flip). It depends on the loader's seed, the epoch and
  /// the sample's index only: never on which worker reads the sample, nor on how many workers or ranks there
  /// are.
  std::uint64_t seed = 0;
};

/// The seed that a loader puts into SampleContext. *Local*, pure.
std::uint64_t sample_seed(std::uint64_t loader_seed, std::int64_t epoch, std::int64_t index) noexcept;

/// Samples that are found by number. Derive from it and write two methods.
///
/// Threads: every method may be called from several threads at once; they are const and must not change
/// shared state without a lock. Everything is *Local*.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// The number of samples; does not change during the data set's life.
  virtual std::int64_t size() const = 0;

  /// The sample numbered `index`, 0 <= index < size(). What it throws reaches the loader's user with the
  /// index added.
  virtual Example get(std::int64_t index, const SampleContext& context) const = 0;

  /// What tells this data set from others, for the checkpoints of its loaders: a loader refuses the position
  /// of a data set of another fingerprint. The default knows the number of samples only; override it where a
  /// file's name and checksum or a fingerprint are at hand. Must be the same on every rank and in every run.
  virtual std::string fingerprint() const;

  /// get() for a loader: the sample's `indices` are filled in, and what get() throws becomes a DataError that
  /// names the index, with the first exception nested.
  Example get_named(std::int64_t index, const SampleContext& context) const;

  /// Several samples as one batch, row i for `indices[i]` with `contexts[i]`; both spans have one length. The
  /// default reads them one by one with get_named() and stacks them with default_collate. Override it where
  /// many rows are read more cheaply at once.
  virtual Batch get_batch(std::span<const std::int64_t> indices,
                          std::span<const SampleContext> contexts) const;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset& operator=(Dataset&&) = default;
};

/// Tensors of equal first dimension, and texts, as a data set: sample i is row i of each. Holds handles,
/// copies nothing.
class TensorDataset final : public Dataset {
 public:
  /// `TensorDataset({{"image", images}, {"label", labels}})`. Throws UsageError without a tensor, for a
  /// scalar, or when the first dimensions differ.
  explicit TensorDataset(Batch tensors);

  /// The rows of the tensors.
  std::int64_t size() const override { return tensors_.size(); }
  /// Views of the rows (no copy). Throws UsageError for an index out of range.
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// One gather for each tensor. Throws UsageError for an index out of range.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;

 private:
  Batch tensors_;
};

/// Some samples of another data set, in the order given: sample i is the sample `indices[i]` of `dataset`.
class Subset final : public Dataset {
 public:
  /// Shares `dataset`. Throws UsageError for no data set or an index out of its range.
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices);

  /// The number of chosen samples, counting one that is chosen twice as two.
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  /// The whole data set's sample `indices()[index]`, with the context as it came: its seed belongs to the
  /// loader's index. Throws UsageError for an index out of range, and what the whole data set throws.
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// One get_batch() of the whole data set. The batch's `indices` are this subset's own.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;

  /// The whole data set's fingerprint with a checksum of the indices.
  std::string fingerprint() const override;

  /// Which samples of the whole data set these are.
  const std::vector<std::int64_t>& indices() const noexcept { return indices_; }

 private:
  std::int64_t whole_index(std::int64_t index) const;

  std::shared_ptr<const Dataset> dataset_;
  std::vector<std::int64_t> indices_;
};

/// Splits a data set at random into parts of the given lengths: index for index the parts of PyTorch's
/// `torch.utils.data.random_split(dataset, lengths, torch.Generator().manual_seed(seed))`. *Local*: every
/// rank that passes the same seed gets the same parts. Throws UsageError when a length is negative or the
/// lengths do not add up to the size of the data set.
std::vector<std::shared_ptr<const Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                        std::span<const std::int64_t> lengths,
                                                        std::uint64_t seed);
/// `random_split(dataset, {1438, 359}, 42)`
inline std::vector<std::shared_ptr<const Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                               std::initializer_list<std::int64_t> lengths,
                                                               std::uint64_t seed) {
  return random_split(dataset, std::span(lengths.begin(), lengths.size()), seed);
}

}  // namespace lockstep
