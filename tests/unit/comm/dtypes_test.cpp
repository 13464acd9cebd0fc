// Which dtypes and layouts collectives and messages take, on each CPU backend.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::message_of;
using testing::run_ranks;

/// [rank, rank + 1, rank + 2].
at::Tensor real_part(int rank) { return at::arange(rank, rank + 3, at::kFloat); }

class EveryBackend : public ::testing::TestWithParam<CommBackend> {};
INSTANTIATE_TEST_SUITE_P(Backends, EveryBackend, ::testing::Values(CommBackend::gloo, CommBackend::shm));

/// As in torch.distributed, which has no product of them.
TEST_P(EveryBackend, ComplexNumbersAreSummedAndAveraged) {
  const Store store = Store::in_memory();
  run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store, {.backend = GetParam(), .timeout = std::chrono::minutes(1)});
    const at::Tensor own = at::complex(real_part(rank), at::full({3}, 2.0F * static_cast<float>(rank)));
    const at::Tensor sum = at::complex(real_part(0) + real_part(1), at::full({3}, 2.0F));
    const at::Tensor reduced = own.clone(), average = own.to(at::kComplexDouble), at_root = own.clone();
    group.all_reduce(reduced);
    EXPECT_TRUE(at::equal(reduced, sum));
    group.all_reduce(average, ReduceOp::avg);
    EXPECT_TRUE(at::equal(average, sum.to(at::kComplexDouble) / 2));
    group.reduce(at_root, 1);
    EXPECT_TRUE(rank == 0 || at::equal(at_root, sum));
    const at::Tensor part = at::zeros({3}, at::kComplexFloat);
    group.reduce_scatter_tensor(part, at::cat({own, 2 * own}));
    EXPECT_TRUE(at::equal(part, (rank + 1) * sum));
    group.reduce_scatter(part, {own, 3 * own});
    EXPECT_TRUE(at::equal(part, (2 * rank + 1) * sum));
    EXPECT_NE(message_of<UsageError>([&] {
                group.all_reduce(own, ReduceOp::product);
              }).find("'product' is not defined for ComplexFloat: use sum or avg"),
              std::string::npos);
    EXPECT_NE(message_of<UsageError>([&] { group.all_reduce(at::conj(own)); }).find("resolve_conj"),
              std::string::npos);
  });
}

TEST_P(EveryBackend, DenseTensorsInAnotherOrderAreSentAsTheyLieInMemory) {
  const Store store = Store::in_memory();
  run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store, {.backend = GetParam(), .timeout = std::chrono::minutes(1)});
    const at::Tensor values = at::arange(6).view({2, 3}).t();
    const at::Tensor received = at::zeros({2, 3}, at::kLong).t();
    if (rank == 0) group.send(values, 1);
    if (rank == 1) {
      group.recv(received, 0);
      EXPECT_TRUE(at::equal(received, values));
    }
  });
}

TEST_P(EveryBackend, ReductionsThatADtypeDoesNotHaveAreRefusedBeforeAnythingIsSent) {
  const Store store = Store::in_memory();
  run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store, {.backend = GetParam(), .timeout = std::chrono::minutes(1)});
    const auto error_of = [&](at::ScalarType dtype, ReduceOp op) {
      return message_of<UsageError>([&] { group.all_reduce(at::zeros({2}, dtype), op); });
    };
    EXPECT_TRUE(contains_all(error_of(at::kFloat8_e4m3fn, ReduceOp::sum), {"'sum'", "Float8_e4m3fn"}));
    EXPECT_TRUE(contains_all(error_of(at::kHalf, ReduceOp::bit_xor), {"'bit_xor'", "Half"}));
    EXPECT_TRUE(contains_all(error_of(at::kDouble, ReduceOp::bit_and), {"'bit_and'", "Double"}));
    const at::Tensor sum = at::ones({2});
    group.all_reduce(sum);
    EXPECT_TRUE(at::equal(sum, at::full({2}, 2.0F)));
  });
}

}  // namespace
}  // namespace lockstep
