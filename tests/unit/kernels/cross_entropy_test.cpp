#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda_arguments.hpp"
#include "unit/kernels/emulated_kernels.hpp"

namespace lockstep::kernels {
namespace {

/// What the kernel is asked for.
struct LossAsked {
  at::ScalarType dtype = at::kBFloat16;
  double smoothing = 0;
  double factor = 1;
  bool predictions = true;
};

struct LossRun {
  at::Tensor losses, predictions, gradients;
};

constexpr std::int64_t kNone = -100;

/// The kernel on the emulator; `logits` [rows, words], in rows that are padded.
LossRun run_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const LossAsked& asked) {
  testing::EmulatedKernels device;
  const auto rows = logits.size(0), words = logits.size(1), stride = (words + 63) / 64 * 64;
  // What is behind the words must not count, and becomes 0.
  const at::Tensor padded = at::full({rows, stride}, 77.0, logits.options());
  padded.narrow(1, 0, words).copy_(logits);
  LossRun run{.losses = at::full({rows}, NAN, at::kFloat),
              .predictions = at::full({rows}, -1, at::kLong),
              .gradients = padded};
  const at::Tensor factor = at::full({}, asked.factor, at::kFloat);
  const auto* kernel =
      find_kernel("cross_entropy", "cross_entropy<" + cuda_type(asked.dtype) + ", true>", at::kCPU);
  kernel->launch({.blocks = rows, .threads = 512}, padded.data_ptr(), labels.const_data_ptr(),
                 run.losses.data_ptr(), asked.predictions ? run.predictions.data_ptr() : nullptr,
                 asked.factor == 1 ? nullptr : factor.const_data_ptr(), static_cast<int>(words), stride,
                 kNone, static_cast<float>(asked.smoothing), LossTotals{});
  return run;
}

void expect_reference(const at::Tensor& logits, const at::Tensor& labels, const LossAsked& asked) {
  const LossRun run = run_cross_entropy(logits, labels, asked);
  const at::Tensor exact = logits.to(at::kDouble).requires_grad_();
  const auto options = torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(asked.smoothing);
  const at::Tensor losses = torch::nn::functional::cross_entropy(
      exact, labels, torch::nn::functional::CrossEntropyFuncOptions(options).reduction(torch::kNone));
  (losses.sum() * asked.factor).backward();
  EXPECT_TRUE(at::allclose(run.losses.to(at::kDouble), losses.detach(), 2e-6, 2e-5))
      << (run.losses - losses).abs().max();
  const auto words = logits.size(1);
  const double unit = asked.dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
  EXPECT_TRUE(
      at::allclose(run.gradients.narrow(1, 0, words).to(at::kDouble), exact.grad(), 1.05 * unit, 1e-7));
  EXPECT_EQ(run.gradients.narrow(1, words, run.gradients.size(1) - words).abs().sum().item<double>(), 0);
  if (asked.predictions) {
    EXPECT_TRUE(at::equal(run.predictions, logits.argmax(-1)));
  }
}

TEST(CrossEntropyKernel, IsThatOfFloat64) {
  torch::manual_seed(1);
  for (const std::int64_t words : {2, 63, 64, 65, 1000, 5003, 9216}) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const double smoothing : {0.0, 0.1}) {
        SCOPED_TRACE(std::to_string(words) + " words, " + c10::toString(dtype) + ", smoothing " +
                     std::to_string(smoothing));
        const at::Tensor logits = (torch::randn({3, words}) * 4).to(dtype);
        const at::Tensor labels = torch::randint(words, {3}, at::kLong);
        labels[1] = kNone;
        expect_reference(logits, labels, {.dtype = dtype, .smoothing = smoothing, .factor = 0.5});
        expect_reference(logits, labels, {.dtype = dtype, .smoothing = smoothing, .predictions = false});
      }
    }
  }
}

TEST(CrossEntropyKernel, OfLargeLogitsAndOfNoLabels) {
  const at::Tensor logits = at::tensor({3e4, -3e4, 3e4, 1.0, -INFINITY, 2.0}).view({2, 3}).to(at::kBFloat16);
  expect_reference(logits, at::zeros({2}, at::kLong), {});
  const LossRun none = run_cross_entropy(logits, at::full({2}, kNone, at::kLong), {.predictions = false});
  EXPECT_EQ(none.losses.abs().sum().item<double>(), 0);
  EXPECT_EQ(none.gradients.abs().sum().item<double>(), 0);
}

TEST(CrossEntropyKernel, OfWhatIsNotFiniteIsNot) {
  const at::Tensor logits = at::zeros({3, 70}, at::kBFloat16);
  logits[0][69] = NAN;
  logits[1][3] = INFINITY;
  logits[2].fill_(-INFINITY);
  const LossRun run = run_cross_entropy(logits, at::zeros({3}, at::kLong), {});
  EXPECT_TRUE(run.losses.isnan().all().item<bool>()) << run.losses;
  EXPECT_TRUE(at::equal(run.predictions.narrow(0, 0, 2), at::tensor({std::int64_t{69}, std::int64_t{3}})));
}

TEST(CrossEntropyKernel, RefusesALabelThatIsNoWord) {
  for (const std::int64_t label : {std::int64_t{70}, std::int64_t{-1}}) {
    EXPECT_THROW(run_cross_entropy(at::zeros({1, 70}, at::kBFloat16), at::full({1}, label, at::kLong), {}),
                 std::invalid_argument);
  }
}

}  // namespace
}  // namespace lockstep::kernels
