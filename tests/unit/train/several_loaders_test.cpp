// Windows of gradient accumulation over the passes of several loaders.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/parameter_groups.hpp"
#include "lockstep/parallel/local_sgd.hpp"
#include "lockstep/train/accelerator.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/optim/schedules_goldens.hpp"
#include "unit/train/small_training.hpp"

namespace lockstep {
namespace {

using testing::accumulating;
using testing::make_loader;
using testing::make_model;
using testing::run_accelerators;

/// Micro-batches of a loop over several loaders: their losses' gradients are 1, 2, 3 and so on.
class CountedWindows {
 public:
  explicit CountedWindows(Accelerator& accelerator)
      : accelerator_(accelerator), ddp_(accelerator.prepare(model_)) {}

  void run() {
    const auto step = accelerator_.accumulate();
    accelerator_.backward(ddp_(torch::zeros({1, 3})).sum() * ++micro_batches_);
    ++in_window_;
    if (!accelerator_.sync_gradients()) return;
    // The mean over the window times its length.
    sum_ += model_->bias.grad().item<double>() * static_cast<double>(in_window_);
    lengths_.push_back(in_window_);
    in_window_ = 0;
    ddp_.zero_grad();
  }
  /// All micro-batches were part of a step, each with the weight of its window.
  void expect_windows(const std::vector<std::int64_t>& lengths) {
    EXPECT_EQ(lengths_, lengths);
    EXPECT_EQ(in_window_, 0);
    const auto all = static_cast<double>(micro_batches_);
    EXPECT_NEAR(sum_, all * (all + 1) / 2, 1e-4);
  }
  std::int64_t micro_batches() const { return micro_batches_; }

 private:
  Accelerator& accelerator_;
  torch::nn::Linear model_ = make_model();
  AcceleratedModel<torch::nn::Linear> ddp_;
  std::int64_t micro_batches_ = 0, in_window_ = 0;
  double sum_ = 0;
  std::vector<std::int64_t> lengths_;
};

/// A program with two loaders in windows of four.
void run_two_loaders(std::int64_t first, std::int64_t second,
                     const std::function<void(DataLoader&, DataLoader&, CountedWindows&)>& loop,
                     const std::vector<std::int64_t>& lengths) {
  SCOPED_TRACE(::testing::Message() << first << " and " << second << " batches");
  run_accelerators(
      1,
      [&](Accelerator& accelerator) {
        auto [one, other] = accelerator.prepare(make_loader(first, 1), make_loader(second, 1));
        CountedWindows windows(accelerator);
        loop(one, other, windows);
        windows.expect_windows(lengths);
      },
      accumulating(4));
}

TEST(SeveralLoaders, AreReadSideBySide) {
  const auto loop = [](DataLoader& one, DataLoader& other, CountedWindows& windows) {
    auto second = other.begin();
    for (auto first = one.begin(); first != one.end(); ++first, ++second) windows.run();
  };
  run_two_loaders(20, 20, loop, {4, 4, 4, 4, 4});
  run_two_loaders(22, 22, loop, {4, 4, 4, 4, 4, 2});
}

/// As in Accelerate, a loader's last batch ends a window. Here its losses are divided by what the window had.
TEST(SeveralLoaders, AreReadSideBySideTheShorterOneAgain) {
  const auto loop = [](DataLoader& one, DataLoader& other, CountedWindows& windows) {
    auto second = other.begin();
    for (auto first = one.begin(); first != one.end(); ++first) {
      windows.run();
      if (++second == other.end()) second = other.begin();
    }
  };
  run_two_loaders(20, 7, loop, {4, 3, 4, 3, 4, 2});
  run_two_loaders(20, 3, loop, {3, 3, 3, 3, 3, 3, 2});
}

TEST(SeveralLoaders, AreReadInTurn) {
  const auto loop = [](DataLoader& one, DataLoader& other, CountedWindows& windows) {
    auto first = one.begin(), second = other.begin();
    while (first != one.end()) {
      if (windows.micro_batches() > 0) ++first;
      if (first == one.end()) break;
      windows.run();
      if (windows.micro_batches() > 1) ++second;
      windows.run();
    }
  };
  run_two_loaders(10, 10, loop, {4, 4, 4, 4, 4});
}

/// Each pass is left after one batch, and the next one continues.
TEST(SeveralLoaders, AreReadInTurnOneBatchAPass) {
  const auto loop = [](DataLoader& one, DataLoader& other, CountedWindows& windows) {
    for (int i = 0; i < 10; ++i) {
      for (auto* const loader : {&one, &other}) {
        for ([[maybe_unused]] auto& batch : *loader) {
          windows.run();
          break;
        }
      }
    }
  };
  run_two_loaders(30, 30, loop, {4, 4, 4, 4, 4});
}

TEST(SeveralLoaders, MayStartOverInEveryMicroBatch) {
  const auto loop = [](DataLoader& one, DataLoader& other, CountedWindows& windows) {
    for (auto first = one.begin(); first != one.end(); ++first) {
      other.rewind();
      const auto second = other.begin();
      windows.run();
    }
  };
  run_two_loaders(20, 9, loop, {4, 4, 4, 4, 4});
}

TEST(SeveralLoaders, AreReadOneInsideOfTheOther) {
  const auto loop = [](DataLoader& one, DataLoader& other, CountedWindows& windows) {
    for ([[maybe_unused]] auto& outer : one) {
      for ([[maybe_unused]] auto& inner : other) windows.run();
    }
  };
  run_two_loaders(3, 6, loop, {4, 2, 4, 2, 4, 2});
}

/// A batch that the program passes over does not make the last step smaller.
TEST(Gradients, OfAWindowThatEndsEarlyAreDividedByItsLength) {
  run_accelerators(
      1,
      [](Accelerator& accelerator) {
        auto loader = accelerator.prepare(make_loader(20, 1));
        CountedWindows windows(accelerator);
        for (const auto& batch : loader) {
          if (batch["number"].item<int>() != 18) windows.run();
        }
        windows.expect_windows({4, 4, 4, 4, 3});
      },
      accumulating(4));
}

}  // namespace
}  // namespace lockstep
