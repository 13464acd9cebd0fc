#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"

namespace lockstep {

/// Adapts a LibTorch data set to Dataset; created by wrap().
///
/// Several threads may read it, although a `torch::data` data set need not allow that: as in LibTorch's own
/// loader, each of the threads that read at the same time uses its own copy of the data set. Copies are
/// created when they are first needed, and kept.
template <typename TorchDataset>
class WrappedTorchDataset final : public Dataset {
 public:
  /// Takes ownership of the data set. Throws UsageError if it does not know its size.
  explicit WrappedTorchDataset(TorchDataset dataset)
      : original_(std::move(dataset)), size_(checked_size(original_)) {}

  /// The size of the data set when it was wrapped.
  std::int64_t size() const override { return size_; }

  /// The tensors "data" and, if the data set has targets, "target". The sample's seed is not used. Throws
  /// UsageError for an index out of range.
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

  /// A copy that no other thread uses. A copy whose get() threw is not given back: its state is unknown.
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

/// Adapts a `torch::data::datasets::Dataset` to a DataLoader, or any copyable type with `size()` and
/// `get(index)` whose result has `.data` and optionally `.target`, both tensors:
///
///     DataLoader loader(wrap(torch::data::datasets::MNIST("mnist")), {.batch_size = 64});
///     for (auto& batch : loader) step(batch["data"], batch["target"]);
///
/// *Local*. Takes ownership of the data set by move. Throws UsageError if it does not know its size. This
/// header includes no LibTorch data header: include that of the data set.
template <typename TorchDataset>
std::shared_ptr<const Dataset> wrap(TorchDataset dataset) {
  return std::make_shared<const WrappedTorchDataset<TorchDataset>>(std::move(dataset));
}

}  // namespace lockstep
