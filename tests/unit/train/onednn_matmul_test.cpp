// oneDNN's products compared with LibTorch's, in a separate process, because the kernels stay replaced.

#include <ATen/ATen.h>
#include <ATen/CPUFunctions.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/linear.h>

#include "lockstep/core/error.hpp"
#include "lockstep/train/onednn_matmul.hpp"
#include "support/throws.hpp"

namespace at::native {
__attribute__((weak, visibility("default"))) void mkldnn_matmul(const Tensor& a, const Tensor& b,
                                                                const Tensor& result, float beta,
                                                                float alpha);
}

namespace lockstep {
namespace {

class OnednnMatmul : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    if (!use_onednn_matmul({{"LOCKSTEP_ONEDNN_MATMUL", "1"}}))
      GTEST_SKIP() << "this LibTorch has no oneDNN, or this CPU no AVX-512 for it";
  }
};

void expect_close(const at::Tensor& one, const at::Tensor& other, const std::string& what) {
  ASSERT_EQ(one.sizes(), other.sizes()) << what;
  ASSERT_EQ(one.scalar_type(), other.scalar_type()) << what;
  EXPECT_TRUE(at::allclose(one, other, 1e-4, 1e-3)) << what << ": " << (one - other).abs().max();
}

/// A matrix as it is, transposed, and with gaps between its rows.
std::vector<at::Tensor> layouts(std::int64_t rows, std::int64_t columns) {
  return {at::randn({rows, columns}), at::randn({columns, rows}).t(),
          at::randn({rows, 2 * columns}).slice(1, 0, columns),
          at::randn({1, columns}).expand({rows, columns})};
}

TEST_F(OnednnMatmul, GivesWhatLibTorchGives) {
  for (const auto& a : layouts(150, 130)) {
    for (const auto& b : layouts(130, 140)) {
      expect_close(at::mm(a, b), at::cpu::mm(a, b), "mm");
      for (const auto& sum : {at::randn({140}), at::randn({150, 140}), at::randn({150, 1})})
        expect_close(at::addmm(sum, a, b), at::cpu::addmm(sum, a, b), "addmm");
      const at::Tensor batch = a.unsqueeze(0).expand({3, 150, 130}),
                       others = b.unsqueeze(0).repeat({3, 1, 1});
      expect_close(at::bmm(batch, others), at::cpu::bmm(batch, others), "bmm");
      const at::Tensor sum = at::randn({3, 150, 140});
      expect_close(at::baddbmm(sum, batch, others), at::cpu::baddbmm(sum, batch, others), "baddbmm");
    }
  }
}

TEST_F(OnednnMatmul, IsReallyOneDnns) {
  const at::Tensor a = at::randn({300, 400}), b = at::randn({400, 200});
  const at::Tensor expected = at::empty({300, 200});
  at::native::mkldnn_matmul(a, b, expected, 0, 1);
  EXPECT_TRUE(at::equal(at::mm(a, b), expected));
  EXPECT_TRUE(at::equal(torch::nn::functional::linear(a, b.t()), expected));
}

TEST_F(OnednnMatmul, LeavesTheRestToLibTorch) {
  const at::Tensor a = at::randn({150, 130}), b = at::randn({130, 140}), sum = at::randn({150, 140});
  for (const auto type : {at::kDouble, at::kInt, at::kBFloat16})
    EXPECT_TRUE(at::equal(at::mm(a.to(type), b.to(type)), at::cpu::mm(a.to(type), b.to(type)))) << type;
  EXPECT_TRUE(at::equal(at::addmm(sum, a, b, 0.5, 2), at::cpu::addmm(sum, a, b, 0.5, 2)));
  const at::Tensor small = at::randn({8, 8});
  EXPECT_TRUE(at::equal(at::mm(small, small), at::cpu::mm(small, small)));
  EXPECT_EQ(at::mm(at::randn({0, 4}), at::randn({4, 3})).sizes(), at::IntArrayRef({0, 3}));
  EXPECT_THROWS(at::mm(a, a), c10::Error, "mat1 and mat2 shapes cannot be multiplied");
  EXPECT_THROWS(at::bmm(at::randn({2, 150, 130}), at::randn({3, 130, 140})), c10::Error, "batch");
}

TEST_F(OnednnMatmul, HasTheGradientsOfLibTorch) {
  at::Tensor weight = at::randn({140, 130}).requires_grad_(), input = at::randn({150, 130}).requires_grad_();
  const at::Tensor bias = at::randn({140}).requires_grad_(), factor = at::randn({150, 140});
  (torch::nn::functional::linear(input, weight, bias) * factor).sum().backward();
  const at::Tensor w = weight.detach().to(at::kDouble), x = input.detach().to(at::kDouble),
                   f = factor.to(at::kDouble);
  expect_close(weight.grad(), f.t().mm(x).to(at::kFloat), "weight");
  expect_close(input.grad(), f.mm(w).to(at::kFloat), "input");
  expect_close(bias.grad(), f.sum(0).to(at::kFloat), "bias");
}

/// Whether oneDNN is used or not, on any CPU.
TEST(OnednnMatmulVariable, LeavesLargeProductsRight) {
  use_onednn_matmul({{"LOCKSTEP_ONEDNN_MATMUL", "1"}});
  const at::Tensor a = at::randn({300, 400}), b = at::randn({400, 200});
  expect_close(at::mm(a, b), a.to(at::kDouble).mm(b.to(at::kDouble)).to(at::kFloat), "mm");
}

TEST(OnednnMatmulVariable, TurnsItOff) {
  EXPECT_FALSE(use_onednn_matmul({{"LOCKSTEP_ONEDNN_MATMUL", "0"}}));
  EXPECT_FALSE(use_onednn_matmul({{"ATEN_CPU_CAPABILITY", "default"}}));
  EXPECT_FALSE(use_onednn_matmul({{"MKL_CBWR", "COMPATIBLE"}}));
  EXPECT_THROWS(use_onednn_matmul({{"LOCKSTEP_ONEDNN_MATMUL", "yes"}}), UsageError, "'yes'",
                "expected 0 or 1");
}

}  // namespace
}  // namespace lockstep
