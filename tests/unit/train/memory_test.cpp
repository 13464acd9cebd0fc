// Memory: the largest batch that fits, and the layout of weights.
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <new>

#include "lockstep/core/error.hpp"
#include "lockstep/train/accelerator.hpp"
#include "lockstep/train/executable_batch_size.hpp"
#include "support/accelerators.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_accelerators;
using testing::TemporaryFolder;

/// One rank has less memory; all ranks end with the size that fits there.
TEST(FindExecutableBatchSize, IsAgreed) {
  run_accelerators(3, [](Accelerator& accelerator) {
    std::vector<std::int64_t> tried;
    const auto found = find_executable_batch_size(accelerator, 128, [&](std::int64_t size) {
      tried.push_back(size);
      if (accelerator.process_index() == 1 && size > 100) throw std::bad_alloc();
      if (accelerator.process_index() == 2 && size > 110) TORCH_CHECK_WITH(OutOfMemoryError, false, "full");
    });
    EXPECT_EQ(found, 92);
    EXPECT_EQ(tried, (std::vector<std::int64_t>{128, 115, 103, 92}));
    const auto never = [&] {
      find_executable_batch_size(accelerator, 3, [](std::int64_t) { throw std::bad_alloc(); });
    };
    EXPECT_THROWS(never(), Error, "not even one sample");
    const auto wrong = [&] {
      find_executable_batch_size(accelerator, 3, [&](std::int64_t) {
        if (accelerator.is_main_process()) throw DataError("no file");
      });
    };
    EXPECT_THROWS(wrong(), Error, "no file");
  });
}

/// Only one rank runs out of memory, in the middle of a step in which the others wait for it.
TEST(FindExecutableBatchSize, LeavesNobodyInACollective) {
  run_accelerators(3, [](Accelerator& accelerator) {
    std::vector<std::int64_t> tried;
    const auto found =
        find_executable_batch_size(accelerator, 10, [&](Accelerator& attempt, std::int64_t size) {
          tried.push_back(size);
          torch::nn::Linear model(3, 1);
          auto ddp = attempt.prepare(model);
          const at::Tensor loss = ddp(torch::ones({1, 3})).sum();
          if (attempt.process_index() == 1 && size > 8) throw std::bad_alloc();
          attempt.backward(loss);
          EXPECT_EQ(attempt.reduce(torch::ones({1})).item<double>(), 3);
        });
    EXPECT_EQ(found, 8);
    EXPECT_EQ(tried, (std::vector<std::int64_t>{10, 9, 8}));
    EXPECT_EQ(accelerator.reduce(torch::ones({1})).item<double>(), 3) << "the ranks' own group goes on";
    const auto wrong = [&] {
      find_executable_batch_size(accelerator, 3, [&](Accelerator& attempt, std::int64_t) {
        if (attempt.is_main_process()) throw DataError("no file");
        attempt.wait_for_everyone();
      });
    };
    EXPECT_THROWS(wrong(), Error, "no file");
  });
}

/// Other strides, the same values; checkpoints restore them.
TEST(ChannelsLast, IsAnOption) {
  const TemporaryFolder folder;
  const auto train = [&](bool channels_last) {
    at::Tensor weights;
    run_accelerators(
        2,
        [&](Accelerator& accelerator) {
          torch::manual_seed(1);
          torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
          const torch::NoGradGuard no_grad;
          for (auto& parameter : conv->parameters())
            parameter.copy_(torch::linspace(-1, 1, parameter.numel()).reshape(parameter.sizes()));
          const torch::AutoGradMode grad(true);
          torch::optim::SGD sgd(conv->parameters(), 0.1);
          auto [ddp, opt] = accelerator.prepare(conv, sgd);
          EXPECT_EQ(conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast), channels_last);
          const at::Tensor images = torch::arange(96).reshape({2, 3, 4, 4}).to(torch::kFloat) / 96;
          for (int i = 0; i < 3; ++i) {
            accelerator.backward(ddp(images).square().mean() * (accelerator.process_index() + 1));
            opt.step();
            opt.zero_grad();
          }
          const at::Tensor trained = conv->weight.detach().clone();
          accelerator.save_state(folder / "state");
          conv->weight.detach().zero_();
          accelerator.load_state(folder / "state");
          EXPECT_TRUE(torch::equal(conv->weight, trained));
          EXPECT_EQ(conv->weight.is_contiguous(at::MemoryFormat::ChannelsLast), channels_last);
          if (accelerator.is_main_process()) weights = trained;
        },
        {.channels_last = channels_last});
    return weights;
  };
  EXPECT_TRUE(torch::allclose(train(true), train(false), 1e-5, 1e-6));
  EXPECT_THROWS(Accelerator({.deterministic = true, .cudnn_benchmark = true}), UsageError, "cudnn_benchmark");
}

}  // namespace
}  // namespace lockstep
