#include "lockstep/comm/process_group.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::contains_all;
using testing::message_of;
using testing::run_group;
using testing::run_ranks;

/// [rank, rank + 1, rank + 2] + 10 * step.
at::Tensor ramp(int rank, int step = 0, at::ScalarType dtype = at::kFloat) {
  return at::arange(rank, rank + 3, at::TensorOptions().dtype(dtype)) + 10 * step;
}

class EveryWorld : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Sizes, EveryWorld, ::testing::Values(1, 2, 3, 4));

TEST_P(EveryWorld, AllReduceKnowsEveryOperation) {
  run_group(size(), [&](const ProcessGroup& group) {
    at::Tensor sum = at::zeros({3}), product = at::ones({3}), low = ramp(0), high = ramp(size() - 1);
    at::Tensor band = ramp(0, 0, at::kInt), bor = at::zeros({3}, at::kInt), bxor = at::zeros({3}, at::kInt);
    for (int r = 0; r < size(); ++r) {
      sum += ramp(r);
      product *= ramp(r) + 1;
      band = at::bitwise_and(band, ramp(r, 0, at::kInt));
      bor = at::bitwise_or(bor, ramp(r, 0, at::kInt));
      bxor = at::bitwise_xor(bxor, ramp(r, 0, at::kInt));
    }
    const auto reduced = [&](at::Tensor tensor, ReduceOp op) {
      group.all_reduce(tensor, op);
      return tensor;
    };
    const int rank = group.rank();
    EXPECT_TRUE(at::equal(reduced(ramp(rank), ReduceOp::sum), sum));
    EXPECT_TRUE(at::equal(reduced(ramp(rank), ReduceOp::avg), sum / size()));
    EXPECT_TRUE(at::equal(reduced(ramp(rank) + 1, ReduceOp::product), product));
    EXPECT_TRUE(at::equal(reduced(ramp(rank), ReduceOp::min), low));
    EXPECT_TRUE(at::equal(reduced(ramp(rank), ReduceOp::max), high));
    EXPECT_TRUE(at::equal(reduced(ramp(rank, 0, at::kInt), ReduceOp::bit_and), band));
    EXPECT_TRUE(at::equal(reduced(ramp(rank, 0, at::kInt), ReduceOp::bit_or), bor));
    EXPECT_TRUE(at::equal(reduced(ramp(rank, 0, at::kInt), ReduceOp::bit_xor), bxor));
  });
}

TEST_P(EveryWorld, AllReduceKnowsTheDtypes) {
  run_group(size(), [&](const ProcessGroup& group) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kChar, at::kByte}) {
      const at::Tensor tensor = ramp(group.rank(), 0, dtype);
      group.all_reduce(tensor);
      at::Tensor expected = at::zeros({3}, dtype);
      for (int r = 0; r < size(); ++r) expected += ramp(r, 0, dtype);
      EXPECT_TRUE(at::equal(tensor, expected)) << dtype;
    }
  });
}

TEST_P(EveryWorld, BroadcastFromEveryRoot) {
  run_group(size(), [&](const ProcessGroup& group) {
    for (int root = 0; root < size(); ++root) {
      const at::Tensor tensor = ramp(group.rank());
      group.broadcast(tensor, root);
      EXPECT_TRUE(at::equal(tensor, ramp(root)));
    }
  });
}

TEST_P(EveryWorld, ReduceToEveryRoot) {
  run_group(size(), [&](const ProcessGroup& group) {
    for (int root = 0; root < size(); ++root) {
      const at::Tensor tensor = ramp(group.rank());
      group.reduce(tensor, root, ReduceOp::avg);
      if (group.rank() == root) {
        EXPECT_TRUE(at::allclose(tensor, ramp(0) + (size() - 1) / 2.0));
      }
    }
  });
}

TEST_P(EveryWorld, GatherAndAllGather) {
  run_group(size(), [&](const ProcessGroup& group) {
    const auto all = group.all_gather(ramp(group.rank()));
    const auto gathered = group.gather(ramp(group.rank()), size() - 1);
    const at::Tensor flat = at::empty({3 * size()});
    group.all_gather_into_tensor(flat, ramp(group.rank()));
    EXPECT_EQ(gathered.size(), group.rank() == size() - 1 ? all.size() : 0U);
    for (int r = 0; r < size(); ++r) {
      EXPECT_TRUE(at::equal(all[static_cast<std::size_t>(r)], ramp(r)));
      EXPECT_TRUE(at::equal(flat.narrow(0, 3 * r, 3), ramp(r)));
      if (!gathered.empty()) {
        EXPECT_TRUE(at::equal(gathered[static_cast<std::size_t>(r)], ramp(r)));
      }
    }
  });
}

TEST_P(EveryWorld, ScatterAndReduceScatter) {
  run_group(size(), [&](const ProcessGroup& group) {
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(ramp(group.rank(), r));
    const at::Tensor received = at::empty({3});
    group.scatter(received, group.rank() == 0 ? parts : std::vector<at::Tensor>{});
    EXPECT_TRUE(at::equal(received, ramp(0, group.rank())));

    at::Tensor expected = at::zeros({3});
    for (int r = 0; r < size(); ++r) expected += ramp(r, group.rank());
    group.reduce_scatter(received, parts);
    EXPECT_TRUE(at::equal(received, expected));
    group.reduce_scatter_tensor(received, at::cat(parts), ReduceOp::avg);
    EXPECT_TRUE(at::equal(received, expected / size()));
  });
}

TEST_P(EveryWorld, AllToAllWithUnequalParts) {
  run_group(size(), [&](const ProcessGroup& group) {
    const auto part = [](int from, int to) { return at::full({from + 1, to + 1}, 100.0 * from + to); };
    std::vector<at::Tensor> inputs, outputs;
    for (int r = 0; r < size(); ++r) {
      inputs.push_back(part(group.rank(), r));
      outputs.push_back(at::zeros({r + 1, group.rank() + 1}));
    }
    group.all_to_all(outputs, inputs);
    for (int r = 0; r < size(); ++r) {
      EXPECT_TRUE(at::equal(outputs[static_cast<std::size_t>(r)], part(r, group.rank())));
    }
    const at::Tensor slices = at::empty({size()});
    group.all_to_all_single(slices, at::arange(size()).to(at::kFloat) + 10 * group.rank());
    EXPECT_TRUE(at::equal(slices, 10.0 * at::arange(size()).to(at::kFloat) + group.rank()));
  });
}

TEST_P(EveryWorld, SendAndReceiveRoundTheRing) {
  if (size() == 1) return;  // Nobody to send to.
  run_group(size(), [&](const ProcessGroup& group) {
    const int next = (group.rank() + 1) % size();
    const int previous = (group.rank() + size() - 1) % size();
    const at::Tensor received = at::empty({3});
    Work sending = group.send_async(ramp(group.rank()), next, 7);
    group.recv(received, previous, 7);
    sending.wait();
    EXPECT_TRUE(at::equal(received, ramp(previous)));
    if (group.rank() == 0) {
      int sum = 0;
      for (int i = 1; i < size(); ++i) sum += group.recv_any_source(received, 9);
      EXPECT_EQ(sum, size() * (size() - 1) / 2);
    } else {
      group.send(ramp(group.rank()), 0, 9);
    }
  });
}

TEST_P(EveryWorld, AsynchronousWorkCompletesInOrder) {
  run_group(size(), [&](const ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int step = 0; step < 20; ++step) {
      tensors.push_back(ramp(group.rank(), step));
      works.push_back(group.all_reduce_async(tensors.back(), ReduceOp::avg));
    }
    for (std::size_t step = 0; step < works.size(); ++step) {
      works[step].wait();
      works[step].wait();  // A second wait must not divide again.
      EXPECT_TRUE(works[step].is_completed());
      EXPECT_TRUE(at::allclose(tensors[step], ramp(0, static_cast<int>(step)) + (size() - 1) / 2.0));
    }
  });
}

TEST_P(EveryWorld, Objects) {
  run_group(size(), [&](const ProcessGroup& group) {
    const std::string mine(static_cast<std::size_t>(group.rank() * 5), static_cast<char>('a' + group.rank()));
    EXPECT_EQ(group.broadcast_object(mine, size() - 1),
              std::string(static_cast<std::size_t>((size() - 1) * 5), static_cast<char>('a' + size() - 1)));
    EXPECT_EQ(group.broadcast_object(std::string(), 0), "");
    const auto all = group.all_gather_object(mine);
    std::vector<std::string> to_scatter;
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(all.at(static_cast<std::size_t>(r)),
                std::string(static_cast<std::size_t>(r * 5), static_cast<char>('a' + r)));
      to_scatter.push_back("for " + std::to_string(r * 1000));
    }
    EXPECT_EQ(group.scatter_object(group.rank() == 0 ? to_scatter : std::vector<std::string>{}),
              "for " + std::to_string(group.rank() * 1000));
    const nlohmann::json object{{"rank", group.rank()}, {"text", "\u00e4\"\n"}};
    EXPECT_EQ(group.broadcast_object(object).at("rank"), 0);
    EXPECT_EQ(group.all_gather_object(object).back().at("rank"), size() - 1);
    const std::vector<nlohmann::json> objects(static_cast<std::size_t>(size()), object);
    EXPECT_EQ(group.scatter_object(objects).at("text"), "\u00e4\"\n");
  });
}

TEST_P(EveryWorld, BarrierHoldsEveryRankBack) {
  std::atomic<int> arrived{0};
  run_group(size(), [&](const ProcessGroup& group) {
    for (int round = 1; round <= 5; ++round) {
      ++arrived;
      group.barrier();
      EXPECT_GE(arrived.load(), round * size());
    }
  });
}

TEST(ProcessGroup, ABarrierNamesTheRanksThatDidNotArrive) {
  run_group(4, [&](const ProcessGroup& group) {
    if (group.rank() == 1 || group.rank() == 3) return;
    const auto text = message_of<TimeoutError>([&] { group.barrier(milliseconds(300)); });
    EXPECT_NE(text.find("barrier #1 timed out after 300 ms: ranks 1, 3 did not arrive"), std::string::npos)
        << text;
    EXPECT_NE(text.find("rank " + std::to_string(group.rank()) + " of 4"), std::string::npos) << text;
    // And where they are instead.
    EXPECT_NE(text.find(". Now ranks 1, 3 left the group after 0 operations"), std::string::npos) << text;
  });
}

/// One rank has no more batches and comes to the barrier, while another is in the next step: neither would
/// ever come to the other.
class ABarrierInsteadOfACollective : public ::testing::TestWithParam<CommBackend> {};
INSTANTIATE_TEST_SUITE_P(Backends, ABarrierInsteadOfACollective,
                         ::testing::Values(CommBackend::gloo, CommBackend::shm));

TEST_P(ABarrierInsteadOfACollective, IsAnErrorOnBothThatNamesBoth) {
  const Store store = Store::in_memory();
  run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store, {.backend = GetParam(), .timeout = std::chrono::minutes(1)});
    group.all_reduce(at::ones({4}));
    const auto text = message_of<CommunicationError>([&] {
      if (rank == 0) return group.barrier();
      group.all_reduce(at::ones({4}));
    });
    EXPECT_TRUE(
        contains_all(text, {"rank 0 of 2: barrier #1 failed: rank 1 is in all_reduce of sum, 4 x Float #2, "
                            "which this rank has not called"}));
    EXPECT_TRUE(contains_all(text, {"rank " + std::to_string(rank) + " of 2: "}));
  });
}

TEST(ProcessGroup, ABarrierNamesWhoLeft) {
  run_group(2, [&](const ProcessGroup& group) {
    group.all_reduce(at::ones({4}));
    if (group.rank() == 1) return;
    const auto text = message_of<CommunicationError>([&] { group.barrier(); });
    EXPECT_TRUE(contains_all(text, {"rank 0 of 2: barrier #1 failed: rank 1 left the group"}));
  });
}

TEST(ProcessGroup, RanksThatNeverJoinAreNamedAtTheStart) {
  const Store store = Store::in_memory();
  try {
    ProcessGroup(0, 3, store, {.join_timeout = milliseconds(200)});
    FAIL() << "a group of three formed with one rank";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.missing_ranks(), (std::vector<int>{1, 2}));
  }
}

TEST(ProcessGroup, ALostPeerNamesTheOperation) {
  run_group(
      2,
      [&](const ProcessGroup& group) {
        if (group.rank() == 1) return;
        const auto text = message_of<CommunicationError>([&] { group.all_reduce(at::ones({5})); });
        EXPECT_NE(text.find("rank 0 of 2: all_reduce #1 (float32, 5 elements, sum) failed: rank 1 left "),
                  std::string::npos)
            << text;
      },
      milliseconds(2000));
}

TEST(ProcessGroup, TwoProcessesWithOneRankAreRefused) {
  const Store store = Store::in_memory();
  const std::string process = "pid " + std::to_string(getpid()) + " on ";
  run_ranks(3, [&](int number) {
    const int rank = std::min(number, 1);
    const auto text = message_of<CommunicationError>(
        [&] { ProcessGroup(rank, 3, store, {.join_timeout = std::chrono::minutes(1)}); });
    EXPECT_TRUE(contains_all(text, {"two processes claim rank 1 of 3: " + process, ", and " + process,
                                    "makes the group again, give it another prefix of the store"}));
  });
}

TEST(ProcessGroup, DifferentIdeasOfTheWorldAreRefused) {
  const Store store = Store::in_memory();
  EXPECT_THROW(ProcessGroup(0, 2, store, {.join_timeout = milliseconds(50)}), TimeoutError);
  const auto text =
      message_of<CommunicationError>([&] { ProcessGroup(1, 3, store, {.join_timeout = milliseconds(50)}); });
  EXPECT_TRUE(contains_all(
      text, {"rank 1 was started with a world of 3 ranks, but rank 0 of the same job with a world of 2"}));
}

/// Whoever came first does not wait for its `join_timeout`.
TEST(ProcessGroup, DifferentIdeasOfTheWorldEndEveryRank) {
  const Store store = Store::in_memory();
  run_ranks(3, [&](int rank) {
    const auto text = message_of<CommunicationError>(
        [&] { ProcessGroup(rank, rank == 1 ? 4 : 3, store, {.join_timeout = std::chrono::minutes(1)}); });
    EXPECT_TRUE(contains_all(text, {"with a world of 3", "with a world of 4", "the same WORLD_SIZE"}));
  });
}

TEST(ProcessGroup, WrongArgumentsAreNamed) {
  run_group(2, [&](const ProcessGroup& group) {
    const at::Tensor tensor = at::ones({2});
    EXPECT_NE(message_of<UsageError>([&] {
                group.broadcast(tensor, 2);
              }).find("root 2 is not a rank of this group"),
              std::string::npos);
    EXPECT_NE(message_of<UsageError>([&] { group.send(tensor, group.rank()); }).find("cannot send to itself"),
              std::string::npos);
    EXPECT_NE(message_of<UsageError>([&] {
                group.reduce_scatter(tensor, {tensor});
              }).find("expected 2 input tensors"),
              std::string::npos);
    EXPECT_NE(
        message_of<UsageError>([&] { group.all_gather_into_tensor(tensor, tensor); }).find("4 elements"),
        std::string::npos);
    EXPECT_THROW(group.all_reduce(at::ones({2}, at::kInt), ReduceOp::avg), UsageError);
    EXPECT_THROW((void)group.new_group({0, 0}), UsageError);
    EXPECT_THROW((void)group.new_group({0, 2}), UsageError);
    EXPECT_THROW((void)group.new_group({}), UsageError);
  });
}

TEST(ProcessGroup, TensorsThatAreNotOnePieceAreRefused) {
  run_group(2, [&](const ProcessGroup& group) {
    const at::Tensor rows = at::zeros({3, 2});
    EXPECT_NE(
        message_of<UsageError>([&] { group.all_reduce(rows.select(1, 0)); }).find("not contiguous in memory"),
        std::string::npos);
    EXPECT_THROW(group.broadcast(at::zeros({1}).expand({4})), UsageError);
    EXPECT_THROW(group.scatter(rows.t(), {rows.t(), rows.t()}), UsageError);
    group.all_reduce(rows.t());  // Dense in another order.
    EXPECT_TRUE(at::equal(group.all_gather(rows.select(1, 0))[1], at::zeros({3})));
  });
}

TEST(ProcessGroup, AveragesParametersInPlace) {
  run_group(2, [&](const ProcessGroup& group) {
    const at::Tensor parameter = at::full({2}, group.rank() * 2.0).requires_grad_();
    group.all_reduce(parameter, ReduceOp::avg);
    EXPECT_TRUE(at::equal(parameter.detach(), at::ones({2})));
  });
}

TEST(ProcessGroup, GathersScalarsIntoOneTensor) {
  run_group(2, [&](const ProcessGroup& group) {
    const at::Tensor all = at::empty({2});
    group.all_gather_into_tensor(all, at::scalar_tensor(group.rank()));
    EXPECT_TRUE(at::equal(all, at::arange(2).to(at::kFloat)));
  });
}

TEST(ProcessGroup, ImpossibleOptionsAreRefused) {
  const Store store = Store::in_memory();
  EXPECT_THROW(ProcessGroup(2, 2, store), UsageError);
  EXPECT_THROW(ProcessGroup(0, 1, store, {.backend = CommBackend::nccl}), UsageError);
  EXPECT_THROW(ProcessGroup(0, 1, store, {.device = at::Device(at::kCUDA)}), UsageError);
  EXPECT_THROW(ProcessGroup(0, 1, store, {.timeout = milliseconds(0)}), UsageError);
  EXPECT_THROW(comm_backend_from("mpi"), UsageError);
  EXPECT_EQ(comm_backend_from("auto"), CommBackend::automatic);
}

TEST(ProcessGroup, SubGroupsWorkSideBySide) {
  run_group(4, [&](const ProcessGroup& group) {
    const auto even = group.new_group({2, 0});
    const auto odd = group.new_group({1, 3});
    EXPECT_EQ(even.has_value(), group.rank() % 2 == 0);
    EXPECT_EQ(odd.has_value(), group.rank() % 2 == 1);
    const ProcessGroup& mine = even ? *even : *odd;
    EXPECT_EQ(mine.size(), 2);
    EXPECT_EQ(mine.rank(), group.rank() == 0 || group.rank() == 3 ? 1 : 0);
    const at::Tensor tensor = at::full({1}, group.rank());
    mine.all_reduce(tensor);
    EXPECT_EQ(tensor.item<int>(), even ? 2 : 4);
    mine.barrier();
    group.barrier();
  });
}

TEST(ProcessGroup, SubGroupsWithDifferentListsAreRefused) {
  std::atomic<int> refused{0};
  run_group(2, [&](const ProcessGroup& group) {
    try {
      (void)group.new_group(group.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0});
    } catch (const CommunicationError& error) {
      EXPECT_TRUE(contains_all(error.what(), {"[0,1]", "[1,0]", "every rank must pass the same list"}));
      ++refused;
    }
  });
  EXPECT_EQ(refused.load(), 2);
}

TEST(ProcessGroup, AWorldOfOneNeedsNoNetwork) {
  const ProcessGroup group = ProcessGroup::init(World::single());
  const at::Tensor tensor = ramp(3);
  group.all_reduce(tensor);
  group.barrier();
  EXPECT_TRUE(at::equal(tensor, ramp(3)));
  EXPECT_EQ(group.broadcast_object(std::string("same")), "same");
}

/// Ranks that compare everything.
void run_detailed(int size, CommBackend backend, const std::function<void(const ProcessGroup&)>& body) {
  const Store store = Store::in_memory();
  run_ranks(size, [&](int rank) {
    DiagnosticsOptions diagnostics;
    diagnostics.check = CollectiveCheckLevel::detail;
    body(ProcessGroup(rank, size, store,
                      {.backend = backend, .timeout = std::chrono::seconds(30), .diagnostics = diagnostics}));
  });
}

class InDetail : public ::testing::TestWithParam<CommBackend> {};
INSTANTIATE_TEST_SUITE_P(Backends, InDetail, ::testing::Values(CommBackend::gloo, CommBackend::shm));

TEST_P(InDetail, TheProgramsLineIsNamed) {
  run_detailed(2, GetParam(), [](const ProcessGroup& group) {
    const at::Tensor tensor = at::ones({group.rank() == 0 ? 3 : 4});
    const auto text = message_of<CommunicationError>([&] { group.all_reduce(tensor); });
    EXPECT_TRUE(contains_all(text, {"Float [3] (called by ", "Float [4] (called by ", "comm_test"}));
  });
}

TEST_P(InDetail, SplitSizesAreCompared) {
  run_detailed(2, GetParam(), [](const ProcessGroup& group) {
    const at::Tensor input = at::ones({5}), output = at::empty({5});
    group.all_to_all_single(output, input, {group.rank() == 0 ? 2 : 3, group.rank() == 0 ? 3 : 2},
                            {group.rank() == 0 ? 2 : 3, group.rank() == 0 ? 3 : 2});
    const auto text = message_of<CommunicationError>([&] {
      group.all_to_all_single(output, input, {4, 1}, {group.rank() == 0 ? 4 : 1, group.rank() == 0 ? 1 : 4});
    });
    EXPECT_TRUE(contains_all(
        text, {"the split sizes of all_to_all_single", "rank 0 gives 1 rows to rank 1, which takes 4"}));
  });
}

}  // namespace
}  // namespace lockstep
