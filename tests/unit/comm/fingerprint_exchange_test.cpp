// Ranks on Gloo alone verify calls that have a label, as the buckets of DistributedDataParallel have, before
// data moves.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/diagnostics/op_meta.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using comm::OperationLabel;
using testing::contains_all;
using testing::message_of;

void run_on_gloo(int size, CollectiveCheckLevel check, const std::function<void(const ProcessGroup&)>& body) {
  const Store store = Store::in_memory();
  DiagnosticsOptions diagnostics;
  diagnostics.check = check;
  testing::run_ranks(size, [&](int rank) {
    body(ProcessGroup(
        rank, size, store,
        {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(30), .diagnostics = diagnostics}));
  });
}

/// With a label on every call.
void run_verified(int size, const std::function<void(const ProcessGroup&)>& body) {
  run_on_gloo(size, CollectiveCheckLevel::info, [&](const ProcessGroup& group) {
    const OperationLabel label("bucket");
    body(group);
  });
}

/// However many there are, whoever it is: all ranks name the same two.
TEST(CallsOnGloo, AreComparedByAllRanks) {
  for (const int size : {2, 3, 4, 5, 7}) {
    for (int odd = 0; odd < size; ++odd) {
      run_verified(size, [&](const ProcessGroup& group) {
        for (const std::int64_t count : {3, 4}) group.all_reduce(at::ones({count}));
        const bool is_odd = group.rank() == odd;
        const at::Tensor tensor = at::ones({is_odd ? 4 : 3});
        const auto text = message_of<CommunicationError>([&] { group.all_reduce(tensor); });
        EXPECT_TRUE(contains_all(
            text, {"rank 0 called all_reduce #3 (float32, " + std::string(odd == 0 ? "4" : "3") +
                       " elements, sum, bucket)",
                   "rank " + std::to_string(odd == 0 ? 1 : odd) + " called all_reduce #3 (float32, " +
                       std::string(odd == 0 ? "3" : "4") + " elements, sum, bucket)"}));
        EXPECT_TRUE((tensor == 1).all().item<bool>());
      });
    }
  }
}

TEST(CallsOnGloo, FailAgainAfterADisagreement) {
  run_verified(2, [](const ProcessGroup& group) {
    const auto call = [&](at::ScalarType dtype) { group.broadcast(at::ones({2}, dtype)); };
    const auto first =
        message_of<CommunicationError>([&] { call(group.rank() == 0 ? at::kInt : at::kFloat); });
    EXPECT_TRUE(contains_all(first, {"int32", "float32"}));
    EXPECT_TRUE(contains_all(message_of<CommunicationError>([&] { call(at::kInt); }), {"int32", "float32"}));
  });
}

/// Rank 1 comes when rank 0 has started all: what went before the disagreement has its result.
TEST(CallsOnGloo, AreStartedWithoutWaiting) {
  std::atomic<bool> started{false};
  run_verified(2, [&](const ProcessGroup& group) {
    if (group.rank() == 1) started.wait(false);
    const at::Tensor good = at::ones({1000});
    Work first = group.all_reduce_async(good);
    Work second = group.all_reduce_async(at::ones({group.rank() == 0 ? 10 : 20}));
    Work third = group.all_reduce_async(at::ones({30}));
    started = true;
    started.notify_all();
    first.wait();
    EXPECT_TRUE((good == 2).all().item<bool>());
    for (Work* work : {&second, &third}) {
      const auto text = message_of<CommunicationError>([&] { work->wait(); });
      EXPECT_TRUE(
          contains_all(text, {"all_reduce #2 (float32, 10 elements", "all_reduce #2 (float32, 20 elements"}));
    }
  });
}

TEST(CallsOnGloo, TellTheirFutures) {
  run_verified(2, [](const ProcessGroup& group) {
    std::vector<at::Tensor> tensors{at::ones({4})};
    c10d::BroadcastOptions options;
    options.rootRank = group.rank();
    const auto future = group.c10d_process_group()->broadcast(tensors, options)->getFuture();
    future->wait();
    ASSERT_TRUE(future->hasError());
    EXPECT_TRUE(contains_all(future->tryRetrieveErrorMessage(), {"root 0", "root 1"}));
  });
}

/// No rank hears of the other's reduction: nothing is exchanged but the data.
TEST(CallsOnGloo, AreNotVerifiedWithoutALabel) {
  run_on_gloo(2, CollectiveCheckLevel::info, [](const ProcessGroup& group) {
    const at::Tensor tensor = at::ones({4});
    group.all_reduce(tensor, group.rank() == 0 ? ReduceOp::max : ReduceOp::min);
    EXPECT_TRUE((tensor == 1).all().item<bool>());
    const OperationLabel label("bucket 0");
    const auto reduction = group.rank() == 0 ? ReduceOp::max : ReduceOp::min;
    EXPECT_THROW(group.all_reduce(tensor, reduction), CommunicationError);
  });
}

TEST(CallsOnGloo, AreNotVerifiedWhereThatIsOff) {
  run_on_gloo(2, CollectiveCheckLevel::off, [](const ProcessGroup& group) {
    const OperationLabel label("bucket 0");
    const at::Tensor tensor = at::ones({4});
    group.all_reduce(tensor, group.rank() == 0 ? ReduceOp::max : ReduceOp::min);
    EXPECT_TRUE((tensor == 1).all().item<bool>());
  });
}

TEST(CallsOnGloo, ThatFailUnverifiedNameTheVariable) {
  const Store store = Store::in_memory();
  testing::run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store,
                             {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(2)});
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    EXPECT_TRUE(contains_all(message_of<CommunicationError>([&] { group.all_reduce(at::ones({4})); }),
                             {"all_reduce #1", "LOCKSTEP_DEBUG=detail"}));
  });
}

/// A start that fails by its arguments is this rank's own matter, though it has been counted.
TEST(CallsOnGloo, ContinueAfterAStartThatFailed) {
  run_verified(2, [](const ProcessGroup& group) {
    if (group.rank() == 0) {
      std::vector<at::Tensor> inputs{at::ones({2})};
      std::vector<std::vector<at::Tensor>> outputs{{at::ones({2})}};
      EXPECT_ANY_THROW(group.c10d_process_group()->allgather(outputs, inputs));
    }
    const at::Tensor tensor = at::ones({3});
    group.all_reduce(tensor);
    EXPECT_TRUE((tensor == 2).all().item<bool>());
  });
}

/// Rank 1 comes when rank 0 has given up, long before the group's timeout.
TEST(CallsOnGloo, KeepToTheTimeoutOfAnOperation) {
  std::atomic<bool> given_up{false};
  run_verified(2, [&](const ProcessGroup& group) {
    if (group.rank() == 1) return given_up.wait(false);
    std::vector<at::Tensor> tensors{at::ones({4})};
    c10d::AllreduceOptions options;
    options.timeout = std::chrono::milliseconds(300);
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_ANY_THROW(group.c10d_process_group()->allreduce(tensors, options)->wait());
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
    given_up = true;
    given_up.notify_all();
  });
}

TEST(CallsOnGloo, LeaveTheirTagsToNobody) {
  run_verified(2, [](const ProcessGroup& group) {
    constexpr int kTag = 2147483392;
    at::Tensor tensor = at::ones({2});
    EXPECT_THROW(group.send(tensor, 1 - group.rank(), kTag), UsageError);
    EXPECT_THROW(group.recv(tensor, 1 - group.rank(), kTag), UsageError);
    if (group.rank() == 0) {
      group.send(tensor * 5, 1, kTag - 1);
    } else {
      group.recv(tensor, 0, kTag - 1);
      EXPECT_TRUE((tensor == 5).all().item<bool>());
    }
  });
}

}  // namespace
}  // namespace lockstep
