#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/data/data_loader.hpp"

namespace lockstep::testing {

using Indices = std::vector<std::int64_t>;

/// Gives index and seed, counts its calls, and fails or dawdles where it is told to.
class Probe final : public Dataset {
 public:
  explicit Probe(std::int64_t size, std::int64_t failing = -1) : size_(size), failing_(failing) {}

  std::int64_t size() const override { return size_; }
  Example get(std::int64_t index, const SampleContext& context) const override {
    ++reads;
    if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (index == failing_) throw std::runtime_error("broken jpeg");
    return {{"index", at::scalar_tensor(index, at::kLong)},
            {"seed", at::scalar_tensor(static_cast<std::int64_t>(context.seed), at::kLong)}};
  }

  mutable std::atomic<int> reads{0};

 private:
  std::int64_t size_;
  std::int64_t failing_;
};

inline std::shared_ptr<const Probe> probe(std::int64_t size, std::int64_t failing = -1) {
  return std::make_shared<const Probe>(size, failing);
}

inline Indices read_pass(DataLoader& loader) {
  Indices indices;
  for (auto& batch : loader) indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
  return indices;
}

inline Indices tensor_indices(const Batch& batch) {
  const auto* first = batch["index"].const_data_ptr<std::int64_t>();
  return {first, first + batch.size()};
}

/// Reads `count` batches and leaves the loop.
inline Indices read_some(DataLoader& loader, std::int64_t count) {
  Indices indices;
  for (auto& batch : loader) {
    indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
    if (--count == 0) break;
  }
  return indices;
}

}  // namespace lockstep::testing
