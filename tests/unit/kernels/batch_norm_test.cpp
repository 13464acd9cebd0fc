#include "kernels/batch_norm.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "support/throws.hpp"
#include "unit/kernels/emulated_kernels.hpp"

namespace lockstep::kernels {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

BatchNorm norm_of(std::int64_t channels, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(7);
  BatchNorm norm{.weight = at::randn({channels}).abs() + 0.1,
                 .bias = at::randn({channels}),
                 .running_mean = at::randn({channels}),
                 .running_var = at::rand({channels}) + 0.5,
                 .num_batches_tracked = at::full({}, 3, at::kLong)};
  for (at::Tensor* tensor : {&norm.weight, &norm.bias, &norm.running_mean, &norm.running_var})
    *tensor = tensor->to(dtype);
  norm.weight.set_requires_grad(true);
  norm.bias.set_requires_grad(true);
  return norm;
}

/// As operations of LibTorch.
at::Tensor composed(const BatchNorm& norm, const at::Tensor& input, const at::Tensor& residual, bool relu) {
  at::Tensor result = at::batch_norm(input, norm.weight, norm.bias, norm.running_mean, norm.running_var, true,
                                     norm.momentum, norm.eps, false);
  if (residual.defined()) result = result + residual;
  return relu ? at::relu(result) : result;
}

/// ||a - b|| / ||b||.
double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

struct NormShape {
  std::int64_t rows, channels, side;
};

void expect_float64(const NormShape& shape, at::ScalarType dtype, bool adds, bool relu, double offset) {
  const testing::EmulatedKernels device;
  const std::vector<std::int64_t> sizes = {shape.rows, shape.channels, shape.side, shape.side};
  torch::manual_seed(1);
  const auto draw = [&](double middle) {
    return (at::randn(sizes) * 2 + middle).to(dtype).contiguous(kLast).set_requires_grad(true);
  };
  const at::Tensor input = draw(offset), residual = adds ? draw(0) : at::Tensor(),
                   gradient = at::randn(sizes).to(dtype).contiguous(kLast);
  const BatchNorm norm = norm_of(shape.channels), wide = norm_of(shape.channels, at::kDouble);
  ASSERT_TRUE(takes_batch_norm(norm, input, residual, relu));
  const at::Tensor output = batch_norm(norm, input, residual, relu);
  EXPECT_TRUE(output.is_contiguous(kLast));
  output.backward(gradient);

  const auto widened = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(at::kDouble).set_requires_grad(true) : tensor;
  };
  const at::Tensor exact_input = widened(input), exact_residual = widened(residual);
  const at::Tensor exact = composed(wide, exact_input, exact_residual, relu);
  exact.backward(gradient.to(at::kDouble));
  const double unit = dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
  EXPECT_LT(distance(output, exact), unit);
  EXPECT_LT(distance(input.grad(), exact_input.grad()), 3 * unit);
  if (adds) {
    EXPECT_LT(distance(residual.grad(), exact_residual.grad()), unit);
  }
  EXPECT_LT(distance(norm.weight.grad(), wide.weight.grad()), 1e-3);
  EXPECT_LT(distance(norm.bias.grad(), wide.bias.grad()), 1e-3);
  EXPECT_LT(distance(norm.running_mean, wide.running_mean), 1e-6);
  EXPECT_LT(distance(norm.running_var, wide.running_var), 1e-5);
  EXPECT_EQ(norm.num_batches_tracked.item<std::int64_t>(), 4);
}

TEST(FusedBatchNorm, IsThatOfFloat64) {
  for (const auto& shape :
       {NormShape{2, 8, 3}, NormShape{3, 64, 5}, NormShape{2, 24, 7}, NormShape{2, 264, 2}}) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      for (const bool adds : {false, true}) {
        for (const bool relu : {false, true}) {
          SCOPED_TRACE(std::to_string(shape.channels) + " channels, " + c10::toString(dtype) +
                       (adds ? ", residual" : "") + (relu ? ", relu" : ""));
          expect_float64(shape, dtype, adds, relu, 0.5);
        }
      }
    }
  }
}

/// The sum of the squares less the square of the mean would have no digit left.
TEST(FusedBatchNorm, KeepsTheVarianceOfValuesFarFromZero) {
  const testing::EmulatedKernels device;
  const at::Tensor input = (at::arange(64).remainder(2).view({8, 1, 8}).expand({8, 8, 8}) + 2048)
                               .reshape({8, 8, 2, 4})
                               .to(at::kHalf)
                               .contiguous(kLast);
  const BatchNorm norm = norm_of(8);
  batch_norm(norm, input + at::arange(8).remainder(2).view({8, 1, 1, 1}).to(at::kHalf) * 2, {}, false);
  BatchNorm wide = norm_of(8, at::kDouble);
  composed(wide, (input + at::arange(8).remainder(2).view({8, 1, 1, 1}).to(at::kHalf) * 2).to(at::kDouble),
           {}, false);
  EXPECT_LT(distance(norm.running_var, wide.running_var), 1e-5);
}

/// A channel with a number that is not finite is NaN, as LibTorch's.
TEST(FusedBatchNorm, KeepsNan) {
  const testing::EmulatedKernels device;
  const at::Tensor input = at::randn({2, 8, 2, 2}).to(at::kHalf).contiguous(kLast);
  input[0][3][0][1] = std::numeric_limits<double>::infinity();
  const at::Tensor nan = batch_norm(norm_of(8), input, {}, true).isnan();
  EXPECT_TRUE(nan.select(1, 3).all().item<bool>());
  EXPECT_EQ(nan.sum().item<std::int64_t>(), 8);
}

/// Of a view that begins in the middle of 16 bytes.
TEST(FusedBatchNorm, TakesAGradientAtAnyPlace) {
  const testing::EmulatedKernels device;
  const auto gradient_of = [](std::int64_t offset) {
    torch::manual_seed(4);
    const at::Tensor input = at::randn({2, 8, 2, 2}).to(at::kHalf).contiguous(kLast).set_requires_grad(true);
    const at::Tensor values = at::randn({64}).to(at::kHalf), memory = at::zeros({72}, at::kHalf);
    memory.narrow(0, offset, 64).copy_(values);
    batch_norm(norm_of(8), input, {}, true).backward(memory.as_strided({2, 8, 2, 2}, {32, 1, 16, 8}, offset));
    return input.grad();
  };
  EXPECT_TRUE(at::equal(gradient_of(0), gradient_of(3)));
}

TEST(FusedBatchNorm, TakesWhatItCanCompute) {
  const testing::EmulatedKernels device;
  const at::Tensor input = at::zeros({2, 16, 3, 3}, at::kBFloat16).contiguous(kLast);
  const BatchNorm norm = norm_of(16);
  EXPECT_TRUE(takes_batch_norm(norm, input, {}, true));
  EXPECT_TRUE(takes_batch_norm(norm, input, input, true));
  EXPECT_FALSE(takes_batch_norm(norm, input.to(at::kFloat), {}, true));
  EXPECT_FALSE(takes_batch_norm(norm, at::zeros({2, 16, 3, 3}, at::kBFloat16), {}, true));
  EXPECT_FALSE(takes_batch_norm(norm, input, at::zeros({2, 16, 3, 3}, at::kBFloat16), true));
  EXPECT_FALSE(
      takes_batch_norm(norm_of(12), at::zeros({2, 12, 3, 3}, at::kBFloat16).contiguous(kLast), {}, true));
  EXPECT_FALSE(takes_batch_norm(norm_of(16, at::kDouble), input, {}, true));
  EXPECT_FALSE(takes_batch_norm(norm, at::zeros({1, 16, 1, 1}, at::kBFloat16).contiguous(kLast), {}, true));
}

TEST(FusedBatchNorm, HasNoSecondDerivatives) {
  const testing::EmulatedKernels device;
  const at::Tensor input =
      at::randn({2, 8, 2, 2}).to(at::kBFloat16).contiguous(kLast).set_requires_grad(true);
  const at::Tensor output = batch_norm(norm_of(8), input, {}, true);
  EXPECT_THROWS(torch::autograd::grad({output.sum()}, {input}, {}, {}, /*create_graph=*/true), UsageError,
                "second derivatives", "fused_kernels");
}

/// All blocks of a network, forward and backward: no less exact than LibTorch's operations in the same dtype.
TEST(FusedBatchNorm, OfAResNetIsItsOwn) {
  const auto run = [](MixedPrecision precision, bool fused) {
    torch::manual_seed(3);
    models::ResNetOptions options = models::ResNetOptions::resnet50(8);
    options.layers = {1, 1, 1, 1};
    options.small_images = true;
    models::ResNet net(options);
    const at::Tensor images = at::randn({4, 3, 8, 8}).contiguous(kLast);
    const Autocast cast(at::kCPU, precision);
    std::optional<testing::EmulatedKernels> device;
    if (fused) device.emplace();
    const at::Tensor loss = net->forward(images).to(at::kFloat).pow(2).mean();
    loss.backward();
    if (fused) {
      // conv1's, three a block, and four of shortcuts.
      EXPECT_EQ(device->launches().at("batch_norm_sums<bf16>"), 1 + 4 * 3 + 4);
    }
    return std::pair{loss.item<double>(), net->parameters().front().grad().clone()};
  };
  const auto [exact_loss, exact] = run(MixedPrecision::no, false);
  const auto [plain_loss, plain] = run(MixedPrecision::bf16, false);
  const auto [fused_loss, fused] = run(MixedPrecision::bf16, true);
  EXPECT_NEAR(fused_loss, exact_loss, 0.02 * exact_loss) << plain_loss;
  EXPECT_LT(distance(fused, exact), 1.2 * distance(plain, exact));
}

}  // namespace
}  // namespace lockstep::kernels
