#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// Context of a read, in addition to the sample's index.
struct SampleContext {
  /// Seed for this sample's random augmentation (a crop, a flip). It depends only on the loader's seed, the
  /// epoch and the sample's index: not on which worker reads the sample, nor on the number of workers or
  /// ranks.
  std::uint64_t seed = 0;
};

/// The seed that a loader puts into SampleContext. *Local*, pure.
std::uint64_t sample_seed(std::uint64_t loader_seed, std::int64_t epoch, std::int64_t index) noexcept;

/// A map-style data set: samples are read by index. A derived class implements two methods.
///
/// Threads: every method may be called from several threads at once; they are const and must not modify
/// shared state without a lock. Everything is *Local*.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// The number of samples; constant during the data set's lifetime.
  virtual std::int64_t size() const = 0;

  /// The sample `index`, 0 <= index < size(). An exception reaches the loader's user with the index added.
  virtual Example get(std::int64_t index, const SampleContext& context) const = 0;

  /// Identifies this data set in the checkpoints of its loaders: a loader rejects the position of a data set
  /// with another fingerprint. The default contains only the number of samples; override it if a file's name
  /// and checksum or a fingerprint are available. Must be the same on every rank and in every run.
  virtual std::string fingerprint() const;

  /// get() for a loader: fills in the sample's `indices`, and converts an exception of get() to a DataError
  /// that names the index, with the original exception nested.
  Example get_named(std::int64_t index, const SampleContext& context) const;

  /// Several samples as one batch: row i is sample `indices[i]`, read with `contexts[i]`; both spans have the
  /// same length. The default reads them one by one with get_named() and stacks them with default_collate.
  /// Override it if reading many rows at once is cheaper.
  virtual Batch get_batch(std::span<const std::int64_t> indices,
                          std::span<const SampleContext> contexts) const;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset& operator=(Dataset&&) = default;
};

/// Tensors of equal first dimension, and texts, as a data set: sample i is row i of each. Stores handles and
/// copies nothing.
class TensorDataset final : public Dataset {
 public:
  /// `TensorDataset({{"image", images}, {"label", labels}})`. Throws UsageError without a tensor, for a
  /// scalar, or if the first dimensions differ.
  explicit TensorDataset(Batch tensors);

  /// The number of rows of the tensors.
  std::int64_t size() const override { return tensors_.size(); }
  /// Views of the rows (no copy). Throws UsageError for an index out of range.
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// One index_select per tensor. Throws UsageError for an index out of range.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;

 private:
  Batch tensors_;
};

/// Selected samples of another data set, in the given order: sample i is sample `indices[i]` of `dataset`.
class Subset final : public Dataset {
 public:
  /// Shares `dataset`. Throws UsageError if it is null or an index is out of its range.
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices);

  /// The number of selected samples; a sample that is selected twice counts twice.
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  /// The whole data set's sample `indices()[index]`. `context` is passed on unchanged: its seed belongs to
  /// the loader's index. Throws UsageError for an index out of range, and what the whole data set throws.
  Example get(std::int64_t index, const SampleContext& context) const override;
  /// One get_batch() of the whole data set. The batch's `indices` are those of this subset.
  Batch get_batch(std::span<const std::int64_t> indices,
                  std::span<const SampleContext> contexts) const override;

  /// The whole data set's fingerprint and a checksum of the indices.
  std::string fingerprint() const override;

  /// Indices into the whole data set.
  const std::vector<std::int64_t>& indices() const noexcept { return indices_; }

 private:
  std::int64_t whole_index(std::int64_t index) const;

  std::shared_ptr<const Dataset> dataset_;
  std::vector<std::int64_t> indices_;
};

/// Splits a data set at random into parts of the given lengths: index for index the parts of PyTorch's
/// `torch.utils.data.random_split(dataset, lengths, torch.Generator().manual_seed(seed))`. *Local*: every
/// rank that passes the same seed gets the same parts. Throws UsageError if a length is negative or the
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

/// The same for fractions that add up to 1: each part gets the fraction rounded down, and the samples that
/// are left go to the parts in turn, one each. Throws UsageError if a fraction is negative or they do not add
/// up to 1.
std::vector<std::shared_ptr<const Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                        std::span<const double> fractions,
                                                        std::uint64_t seed);
/// `random_split(dataset, {0.8, 0.2}, 42)`
template <std::floating_point Fraction>
std::vector<std::shared_ptr<const Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                        std::initializer_list<Fraction> fractions,
                                                        std::uint64_t seed) {
  return random_split(dataset, std::vector<double>(fractions.begin(), fractions.end()), seed);
}

}  // namespace lockstep
