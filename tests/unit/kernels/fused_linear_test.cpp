#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/cuda/graph_recorder.hpp"
#include "kernels/block_counters.hpp"
#include "kernels/column_sums.hpp"
#include "kernels/linear.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "support/throws.hpp"
#include "unit/kernels/emulated_kernels.hpp"
#include "unit/kernels/float64.hpp"

namespace lockstep::kernels {
namespace {

TEST(FusedColumnSums, AreThoseOfFloat64) {
  testing::EmulatedKernels device;
  torch::manual_seed(1);
  for (const std::int64_t width : {8, 64, 256, 264, 768}) {
    for (const std::int64_t rows : {1, 7, 300}) {
      for (const auto dtype : {at::kBFloat16, at::kHalf}) {
        const at::Tensor matrix = torch::randn({rows, width}).to(dtype);
        const at::Tensor sums = column_sums(matrix);
        EXPECT_EQ(sums.scalar_type(), at::kFloat);
        expect_within(sums, matrix.to(at::kDouble).sum(0), 1e-6, std::to_string(width));
        EXPECT_TRUE(at::equal(sums, column_sums(matrix)));
      }
    }
  }
  EXPECT_EQ(device.launches().at("column_sums<bf16>"), 2 * 15);
  // LibTorch's.
  const at::Tensor odd = torch::randn({300, 9}).to(at::kBFloat16);
  expect_within(column_sums(odd), odd.to(at::kDouble).sum(0), 1e-6, "odd");
}

/// Says that the stream is recorded.
class RecordingStream final : public comm::GraphRecorder {
 public:
  comm::GraphPool make_pool() override { return {}; }
  std::unique_ptr<comm::CudaGraph> make_graph(const comm::GraphPool& /*pool*/) override { return nullptr; }
  bool is_recording() override { return true; }
  bool can_record_here(const at::Device& /*device*/) override { return true; }
  void empty_cache() override {}
};

TEST(FusedColumnSums, OfRecordedKernelsHaveTheirOwnCounters) {
  testing::EmulatedKernels device;
  const at::Tensor matrix = torch::randn({300, 264}).to(at::kBFloat16), usual = column_sums(matrix);
  unsigned* const shared = find_block_counters(at::kCPU, 9);
  EXPECT_EQ(find_block_counters(at::kCPU, 5), shared);
  EXPECT_EQ(find_block_counters(at::kCPU, 1 << 13), nullptr);
  RecordingStream recorder;
  const auto replaced = comm::GraphRecorder::replace(recorder);
  unsigned* const first = find_block_counters(at::kCPU, 9);
  EXPECT_GE(first, shared + (1 << 12));
  EXPECT_EQ(find_block_counters(at::kCPU, 5), first + 9);
  EXPECT_TRUE(at::equal(column_sums(matrix), usual));
  EXPECT_FALSE(device.launches().contains("column_totals"));
  // All that are left.
  while (find_block_counters(at::kCPU, 1 << 10) != nullptr) {
  }
  while (find_block_counters(at::kCPU, 1) != nullptr) {
  }
  expect_within(column_sums(matrix), matrix.to(at::kDouble).sum(0), 1e-6, "by a second kernel");
  EXPECT_EQ(device.launches().at("column_totals"), 1);
}

struct LinearCase {
  LinearOptions options;
  bool has_bias = true;
  std::size_t weights = 1;
  at::ScalarType input = at::kFloat;
};

at::Tensor activated64(const at::Tensor& values, Activation activation) {
  if (activation == Activation::none) return values;
  return at::gelu(values, activation == Activation::gelu_tanh ? "tanh" : "none");
}

/// Values of bfloat16, so that only what is computed is rounded.
at::Tensor drawn16(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return torch::randn(sizes).to(at::kBFloat16).to(dtype).requires_grad_();
}

void expect_linear(const LinearCase& one, const std::string& what) {
  torch::manual_seed(5);
  constexpr std::int64_t kInputs = 24, kOutputs = 40;
  const at::Tensor input = drawn16({3, 7, kInputs}, one.input);
  Tensors weights, biases, inputs{input}, inputs64{exactly(input)}, outputs64;
  for (std::size_t i = 0; i < one.weights; ++i) {
    weights.push_back(one.options.is_turned ? drawn16({kInputs, kOutputs}) : drawn16({kOutputs, kInputs}));
    if (one.has_bias) biases.push_back(drawn16({kOutputs}));
  }
  for (const auto* list : {&weights, &biases}) {
    for (const auto& each : *list) {
      inputs.push_back(each);
      inputs64.push_back(exactly(each));
    }
  }
  for (std::size_t i = 0; i < one.weights; ++i) {
    const at::Tensor weight = one.options.is_turned ? inputs64[1 + i].t() : inputs64[1 + i];
    const at::Tensor bias = one.has_bias ? inputs64[1 + one.weights + i] : at::Tensor();
    outputs64.push_back(activated64(at::linear(inputs64[0], weight, bias), one.options.activation));
  }
  const at::Tensor exact = at::cat(outputs64, -1);
  const at::Tensor factor = torch::randn(exact.sizes()).to(at::kBFloat16);
  const auto gradients64 = torch::autograd::grad({exact}, inputs64, {factor.to(at::kDouble)});

  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const at::Tensor got = linear(input, weights, biases, at::kBFloat16, one.options);
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  expect_within(got, exact, 0x1p-8, what);
  const auto gradients = torch::autograd::grad({got}, inputs, {factor});
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(gradients[i].scalar_type(), inputs[i].scalar_type()) << what;
    expect_within(gradients[i], gradients64[i], 0.01, what + ", gradient " + std::to_string(i));
  }
}

TEST(FusedLinear, IsThatOfFloat64) {
  for (const bool is_turned : {false, true}) {
    for (const auto activation : {Activation::none, Activation::gelu, Activation::gelu_tanh}) {
      for (const bool has_bias : {true, false}) {
        for (const std::size_t weights : {1, 3}) {
          for (const auto input : {at::kFloat, at::kBFloat16}) {
            expect_linear({.options = {.is_turned = is_turned, .activation = activation},
                           .has_bias = has_bias,
                           .weights = weights,
                           .input = input},
                          "turned " + std::to_string(is_turned) + ", activation " +
                              std::to_string(static_cast<int>(activation)) + ", bias " +
                              std::to_string(has_bias) + ", weights " + std::to_string(weights));
          }
        }
      }
    }
  }
}

TEST(FusedLinear, GivesNoGradientToWhatIsFrozen) {
  testing::EmulatedKernels device;
  const Autocast cast(at::kCPU, MixedPrecision::bf16);
  const at::Tensor input = drawn16({4, 8}), weight = drawn16({16, 8}), bias = drawn16({16});
  linear(input, {weight.detach()}, {bias.detach()}, at::kBFloat16).sum().backward();
  EXPECT_TRUE(input.grad().defined());
  EXPECT_TRUE(device.launches().empty());
  linear(input.detach(), {weight.detach()}, {bias}, at::kBFloat16).sum().backward();
  EXPECT_TRUE(at::equal(bias.grad(), at::full({16}, 4.0)));
  EXPECT_THROWS(torch::autograd::grad({linear(input, {weight}, {bias}, at::kBFloat16).sum()}, {input}, {}, {},
                                      /*create_graph=*/true),
                UsageError, "second derivatives");
}

}  // namespace
}  // namespace lockstep::kernels
