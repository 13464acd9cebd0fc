// c10d's all_to_all of lists of tensors, which ProcessGroup does not call itself.
#include "support/list_exchange.hpp"

#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::message_of;
using testing::run_ranks;

class ListExchange : public ::testing::TestWithParam<CommBackend> {
 protected:
  static void run(int size, const std::function<void(const ProcessGroup&)>& body) {
    const Store store = Store::in_memory();
    run_ranks(size, [&](int rank) {
      body(ProcessGroup(rank, size, store, {.backend = GetParam(), .timeout = std::chrono::seconds(60)}));
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ListExchange, ::testing::Values(CommBackend::gloo, CommBackend::shm));

TEST_P(ListExchange, BringsWhatEachRankHasForEach) {
  for (int size = 1; size <= 4; ++size)
    run(size, [](const ProcessGroup& group) { EXPECT_EQ(testing::list_exchange_problem(group), ""); });
}

TEST_P(ListExchange, CompletesItsFuture) {
  run(2, [](const ProcessGroup& group) {
    std::vector<at::Tensor> inputs(2, at::full({5}, group.rank() + 1)), outputs(2);
    for (auto& output : outputs) output = at::zeros({5}, at::kLong);
    const auto work = group.c10d_process_group()->alltoall(outputs, inputs);
    const auto future = work->getFuture();
    work->wait();
    future->wait();
    EXPECT_TRUE(work->isCompleted() && work->isSuccess());
    const auto tensors = future->value().toTensorVector();
    ASSERT_EQ(tensors.size(), 2U);
    EXPECT_TRUE(at::equal(tensors[1], at::full({5}, 2)));
    EXPECT_TRUE(tensors[1].is_same(outputs[1]));
  });
}

TEST_P(ListExchange, WorksInInferenceMode) {
  run(2, [](const ProcessGroup& group) {
    const c10::InferenceMode inference;
    EXPECT_EQ(testing::list_exchange_problem(group, at::kFloat, 10), "");
  });
}

TEST_P(ListExchange, RefusesListsThatDoNotFit) {
  run(2, [](const ProcessGroup& group) {
    const auto refused = [&](std::vector<at::Tensor> outputs, std::vector<at::Tensor> inputs) {
      return message_of<UsageError>([&] { group.c10d_process_group()->alltoall(outputs, inputs); });
    };
    const at::Tensor one = at::ones({1}), whole = at::ones({1}, at::kLong);
    EXPECT_TRUE(contains_all(refused({one}, {one, one}), {"expected 2 output tensors", "but got 1"}));
    EXPECT_TRUE(contains_all(refused({one, one}, {}), {"expected 2 input tensors", "but got 0"}));
    EXPECT_TRUE(contains_all(refused({one, whole}, {one, one}), {"one dtype", "Float and Long"}));
  });
}

/// Over Gloo the tensors need not be pieces of memory.
TEST(ListExchangeOverGloo, TakesTensorsOfAnyStrides) {
  const Store store = Store::in_memory();
  run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store,
                             {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(60)});
    const at::Tensor grid = at::arange(12).view({4, 3}) + 100 * rank, received = at::zeros({3, 4}, at::kLong);
    std::vector<at::Tensor> inputs{grid.t(), grid.t()}, outputs{received, at::zeros({4, 3}, at::kLong).t()};
    group.c10d_process_group()->alltoall(outputs, inputs)->wait();
    for (int r = 0; r < 2; ++r) {
      const at::Tensor sent = (at::arange(12).view({4, 3}) + 100 * r).t();
      EXPECT_TRUE(at::equal(outputs[static_cast<std::size_t>(r)], sent));
    }
  });
}

/// The other rank never comes: the wait fails, and the outputs are as they were.
TEST(ListExchangeOverGloo, FailsAsItsExchangeDoes) {
  const Store store = Store::in_memory();
  run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store,
                             {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(1)});
    if (rank == 1) {
      store.get("rank 0 has failed", std::chrono::seconds(60));
      return;
    }
    std::vector<at::Tensor> inputs(2, at::ones({5})), outputs{at::zeros({5}), at::zeros({5})};
    const auto work = group.c10d_process_group()->alltoall(outputs, inputs);
    EXPECT_THROW(work->wait(), Error);
    EXPECT_FALSE(work->isSuccess());
    EXPECT_EQ(outputs[1].sum().item<float>(), 0);
    store.set("rank 0 has failed", "yes");
  });
}

}  // namespace
}  // namespace lockstep
