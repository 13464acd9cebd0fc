#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"

namespace lockstep {

/// A LibTorch data set as a Lockstep one; made by wrap().
///
/// Several threads may read it, although a `torch::data` data set need not allow that: as in LibTorch's own
/// loader every thread that reads at the same time has a copy of the data set to itself. Copies are made when
/// they are first needed, and kept.
template <typename TorchDataset>
class WrappedTorchDataset final : public Dataset {
 public:
  explicit WrappedTorchDataset(TorchDataset dataset)
      : original_(std::move(dataset)), size_(checked_size(original_)) {}

  std::int64_t size() const override { return size_; }

  /// The tensors "data" and, where the data set has targets, "target". The sample's seed is not passed on.
  /// Throws UsageError for an index out of range.
  Example get(std::int64_t index, const SampleContext&) const override {
    if (index < 0 || index >= size_) {
      throw UsageError("sample " + std::to_string(index) + " does not exist: the data set has " +
                       std::to_string(size_) + " samples, numbered from 0.");
    }
    auto copy = borrow();
    auto got = copy->get(static_cast<std::size_t>(index));
    give_back(std::move(copy));
    Example example;
    example.insert("data", std::move(got.data));
    if constexpr (requires { got.target; }) example.insert("target", std::move(got.target));
    return example;
  }

 private:
  static std::int64_t checked_size(const TorchDataset& dataset) {
    const auto size = dataset.size();
    if (!size.has_value())
      throw UsageError("wrap: the data set does not know its size; only one that does can be read.");
    return static_cast<std::int64_t>(*size);
  }

  std::unique_ptr<TorchDataset> borrow() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<TorchDataset>(original_);
    auto copy = std::move(idle_.back());
    idle_.pop_back();
    return copy;
  }

  void give_back(std::unique_ptr<TorchDataset> copy) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(copy));
  }

  const TorchDataset original_;
  const std::int64_t size_;
  mutable std::mutex mutex_;  // guards idle_, and original_ while it is copied
  mutable std::vector<std::unique_ptr<TorchDataset>> idle_;
};

/// Adapts a `torch::data::datasets::Dataset` (or whatever has its `size()` and `get(index)`, gives `.data`
/// and perhaps
/// `.target`, both tensors, and can be copied) to a DataLoader:
///
///     DataLoader loader(wrap(torch::data::datasets::MNIST("mnist")), {.batch_size = 64});
///     for (auto& batch : loader) step(batch["data"], batch["target"]);
///
/// *Local*. Takes the data set over by move. Throws UsageError when it does not know its size. This header
/// includes no LibTorch data header: include the data set's own.
template <typename TorchDataset>
std::shared_ptr<const Dataset> wrap(TorchDataset dataset) {
  return std::make_shared<const WrappedTorchDataset<TorchDataset>>(std::move(dataset));
}

}  // namespace lockstep
