#include "lockstep/data/torch_dataset.hpp"

#include <gtest/gtest.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/tensor.h>

#include <atomic>
#include <thread>

#include "lockstep/data/data_loader.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

/// Not safe from several threads, as a torch::data data set may be: it notices when two threads use one copy.
class Squares : public torch::data::datasets::Dataset<Squares> {
 public:
  explicit Squares(std::int64_t size) : size_(size) {}
  Squares(const Squares& other) : Dataset(other), size_(other.size_) {}
  Squares(Squares&& other) noexcept : size_(other.size_) {}

  torch::data::Example<> get(std::size_t index) override {
    if (busy_.exchange(true)) throw std::runtime_error("two threads in one copy");
    std::this_thread::yield();
    const auto number = static_cast<std::int64_t>(index);
    torch::data::Example<> example(at::full({2}, number), at::scalar_tensor(number * number, at::kLong));
    busy_ = false;
    return example;
  }
  std::optional<std::size_t> size() const override {
    return size_ < 0 ? std::nullopt : std::optional<std::size_t>(static_cast<std::size_t>(size_));
  }

 private:
  std::int64_t size_;
  std::atomic<bool> busy_{false};
};

TEST(WrapTorchDataset, NamesDataAndTarget) {
  const auto dataset = wrap(Squares(12));
  EXPECT_EQ(dataset->size(), 12);
  const auto sample = dataset->get(3, {});
  EXPECT_EQ(sample.names(), (std::vector<std::string>{"data", "target"}));
  EXPECT_EQ(sample["target"].item<std::int64_t>(), 9);
  EXPECT_THROWS(dataset->get(12, {}), UsageError, "sample 12", "12 samples");
  EXPECT_THROWS(dataset->get(-1, {}), UsageError, "sample -1");
}

TEST(WrapTorchDataset, WorkersEachUseACopy) {
  DataLoader loader(wrap(Squares(200)), {.batch_size = 5, .num_workers = 4});
  std::int64_t sum = 0;
  for (auto& batch : loader) sum += batch["target"].sum().item<std::int64_t>();
  EXPECT_EQ(sum, 199 * 200 * 399 / 6);
}

TEST(WrapTorchDataset, ADataSetWithoutTargetsHasDataOnly) {
  const auto dataset = wrap(torch::data::datasets::TensorDataset(at::arange(6).reshape({3, 2})));
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->get(1, {}).names(), std::vector<std::string>{"data"});
  EXPECT_TRUE(at::equal(dataset->get(1, {})["data"], at::tensor({2, 3}, at::kLong)));
}

TEST(WrapTorchDataset, RefusesAnUnknownSize) { EXPECT_THROWS(wrap(Squares(-1)), UsageError, "size"); }

}  // namespace
}  // namespace lockstep
