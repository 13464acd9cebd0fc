// Values from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook._orthogonalize of PyTorch 2.11, of
// the second of two matrices of sin(1.7 i + 0.3).
#include "parallel/orthogonalize.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace {

at::Tensor second_matrix(std::int64_t columns, double epsilon, at::ScalarType dtype = at::kFloat) {
  const at::Tensor numbers = at::arange(2 * 4 * columns, at::kDouble).mul(1.7).add(0.3).sin();
  at::Tensor matrices = numbers.reshape({2, 4, columns}).to(dtype);
  orthogonalize(matrices, epsilon);
  return matrices[1].flatten().to(at::kFloat);
}

void expect_close(const at::Tensor& values, const std::vector<float>& expected, double tolerance = 1e-5) {
  EXPECT_TRUE(at::allclose(values, at::tensor(expected), 0, tolerance)) << values;
}

TEST(Orthogonalize, AddsEpsilonToLengthsOfUpToTwoColumns) {
  expect_close(second_matrix(2, 0),
               {0.511899, 0.647115, -0.526522, -0.20488, 0.506183, -0.25096, -0.452231, 0.690135});
  expect_close(second_matrix(2, 0.5),
               {0.405201, 0.245957, -0.416777, -0.015208, 0.400676, -0.216552, -0.35797, 0.433931});
}

TEST(Orthogonalize, DecomposesMoreColumnsWithoutEpsilon) {
  const std::vector<float> expected{-0.60382, 0.202628,  -0.741786, -0.388768, -0.665734, 0.29448,
                                    0.309929, -0.705894, -0.540492, 0.623061,  0.13211,   -0.266277};
  expect_close(second_matrix(3, 0), expected);
  expect_close(second_matrix(3, 0.5), expected);
}

TEST(Orthogonalize, AddsEpsilonToAnyNumberOfColumnsOfReducedDtypes) {
  expect_close(second_matrix(3, 0.5, at::kBFloat16),
               {0.458984, -0.181641, -0.302734, 0.294922, 0.445312, -0.320312, -0.236328, 0.515625, 0.060547,
                -0.474609, -0.053955, 0.365234},
               4e-3);
}

TEST(Orthogonalize, GivesOrthonormalColumnsForOnesThatVanish) {
  at::Tensor matrices = at::arange(12, at::kDouble).mul(1.7).add(0.3).sin().reshape({1, 4, 3});
  matrices.select(2, 1).zero_();
  orthogonalize(matrices, 0);
  EXPECT_TRUE(at::allclose(at::matmul(matrices[0].t(), matrices[0]), at::eye(3, at::kDouble)));
}

}  // namespace
}  // namespace lockstep::parallel
