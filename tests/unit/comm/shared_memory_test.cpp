#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/backend/cpu_backend.hpp"
#include "shm/segment.hpp"
#include "comm/transport/shared_allocation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::message_of;
using testing::run_group;
using testing::run_ranks;

/// Two groups of the same ranks, one over each backend.
void run_both(int size,
              const std::function<void(const ProcessGroup& shared, const ProcessGroup& gloo)>& body) {
  const Store one = Store::in_memory(), two = Store::in_memory();
  run_ranks(size, [&](int rank) {
    const std::chrono::seconds limit(60);
    const ProcessGroup shared(rank, size, one, {.backend = CommBackend::shm, .timeout = limit});
    const ProcessGroup gloo(rank, size, two, {.backend = CommBackend::gloo, .timeout = limit});
    body(shared, gloo);
  });
}

at::Tensor random_tensor(at::ScalarType dtype, int rank, std::int64_t count) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank) * 1000 +
                                                  static_cast<std::uint64_t>(count));
  const at::Tensor values = at::randn({count}, generator);
  return at::isFloatingType(dtype) ? values.to(dtype) : (values * 40).to(dtype);
}

const ReduceOp kOperations[] = {ReduceOp::sum,     ReduceOp::product, ReduceOp::min,    ReduceOp::max,
                                ReduceOp::bit_and, ReduceOp::bit_or,  ReduceOp::bit_xor};

/// Bit for bit: of two numbers there is only one sum.
TEST(SharedMemory, ReducesAsGlooDoesOnTwoRanks) {
  run_both(2, [](const ProcessGroup& shared, const ProcessGroup& gloo) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kShort, at::kInt,
                             at::kLong, at::kChar, at::kByte}) {
      for (const auto op : kOperations) {
        if (at::isFloatingType(dtype) && op >= ReduceOp::bit_and) continue;
        for (const std::int64_t count : {1, 1000, 300'001}) {
          const at::Tensor ours = random_tensor(dtype, shared.rank(), count);
          const at::Tensor theirs = ours.clone();
          shared.all_reduce(ours, op);
          gloo.all_reduce(theirs, op);
          EXPECT_TRUE(at::equal(ours, theirs)) << dtype << ' ' << static_cast<int>(op) << ' ' << count;
        }
      }
    }
  });
}

/// What is not zero is gathered, and added in rank order.
TEST(SharedMemory, ReducesSparseTensorsAsGlooDoes) {
  run_both(3, [](const ProcessGroup& shared, const ProcessGroup& gloo) {
    const std::int64_t rank = shared.rank();
    const auto make = [&] {
      const at::Tensor indices = at::arange(rank + 1).view({1, rank + 1});
      return at::sparse_coo_tensor(indices, at::full({rank + 1, 2}, static_cast<float>(rank + 1)), {4, 2});
    };
    const at::Tensor expected = at::tensor({6.0F, 5.0F, 3.0F, 0.0F}).view({4, 1}).expand({4, 2});
    for (const auto* group : {&shared, &gloo}) {
      std::vector<at::Tensor> tensors{make()};
      group->c10d_process_group()->getBackend(at::kCPU)->allreduce(tensors)->wait();
      EXPECT_TRUE(at::equal(tensors.front().to_dense(), expected)) << tensors.front().to_dense();
    }
  });
}

/// What rank 0 has received from anybody, by sender, in the order in which it came. Every other rank sends
/// two.
std::map<int, std::vector<at::Tensor>> from_anybody(const ProcessGroup& group, at::ScalarType dtype,
                                                    std::int64_t count, int tag) {
  std::map<int, std::vector<at::Tensor>> received;
  const at::Tensor first = random_tensor(dtype, group.rank(), count);
  if (group.rank() != 0) {
    group.send(first, 0, tag);
    group.send(first + 1, 0, tag);
  }
  for (int i = 0; group.rank() == 0 && i < 2 * (group.size() - 1); ++i) {
    const at::Tensor place = at::zeros({count}, dtype);
    received[group.recv_any_source(place, tag)].push_back(place);
  }
  return received;
}

TEST(SharedMemory, ReceivesFromAnySourceAsGlooDoes) {
  run_both(4, [](const ProcessGroup& shared, const ProcessGroup& gloo) {
    int tag = 0;
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong,
                             at::kShort, at::kChar, at::kByte}) {
      for (const std::int64_t count : {1, 1000, 300'001}) {
        const auto ours = from_anybody(shared, dtype, count, ++tag);
        const auto theirs = from_anybody(gloo, dtype, count, tag);
        ASSERT_EQ(ours.size(), theirs.size());
        for (const auto& [source, messages] : theirs) {
          ASSERT_TRUE(ours.contains(source)) << source;
          ASSERT_EQ(ours.at(source).size(), 2U);
          ASSERT_EQ(messages.size(), 2U);
          for (std::size_t i = 0; i < 2; ++i)
            EXPECT_TRUE(at::equal(ours.at(source)[i], messages[i])) << dtype << ' ' << count << ' ' << source;
        }
      }
    }
  });
}

TEST(SharedMemory, IsWhatAGroupTakesByItself) {
  run_group(2, [](const ProcessGroup& group) {
    EXPECT_NE(comm::shared_heap_of(*group.c10d_process_group()), nullptr);
    EXPECT_EQ(group.c10d_process_group()->getBackend(at::kCPU)->getBackendName(), "shm");
  });
  EXPECT_EQ(comm_backend_from("shm"), CommBackend::shm);
}

/// What ProcessGroup does not call itself, but users of c10d do.
TEST(SharedMemory, ServesUsersOfC10dWithListsOfTensors) {
  run_group(3, [](const ProcessGroup& group) {
    const auto c10d_group = group.c10d_process_group();
    const auto own = [](int rank, int i) { return at::full({i + 2}, 10.0F * static_cast<float>(rank) + 1); };
    std::vector<at::Tensor> inputs, outputs, gathered_inputs{own(group.rank(), 0), own(group.rank(), 1)};
    std::vector<std::vector<at::Tensor>> gathered;
    for (int r = 0; r < group.size(); ++r) {
      inputs.push_back(at::full({r + 1}, group.rank()));
      outputs.push_back(at::empty({group.rank() + 1}, at::kLong));
      gathered.push_back({at::empty({2}), at::empty({3})});
    }
    c10d_group->alltoall(outputs, inputs)->wait();
    c10d_group->allgather_coalesced(gathered, gathered_inputs)->wait();
    for (int r = 0; r < group.size(); ++r) {
      const auto place = static_cast<std::size_t>(r);
      EXPECT_TRUE(at::equal(outputs[place], at::full({group.rank() + 1}, r)));
      for (int i = 0; i < 2; ++i)
        EXPECT_TRUE(at::equal(gathered[place][static_cast<std::size_t>(i)], own(r, i)));
    }
    inputs.pop_back();
    EXPECT_THROW(c10d_group->alltoall(outputs, inputs), Error);
  });
}

TEST(SharedMemory, CompletesFutures) {
  run_group(2, [](const ProcessGroup& group) {
    for (const std::int64_t count : {4, 2'000'000}) {
      std::vector<at::Tensor> tensors{at::ones({count})};
      const auto work = group.c10d_process_group()->allreduce(tensors);
      const auto future = work->getFuture();
      future->waitAndThrow();
      EXPECT_EQ(future->value().toTensorVector().at(0)[count - 1].item<float>(), 2);
      EXPECT_TRUE(work->isCompleted());
    }
  });
}

TEST(SharedMemory, FailsFuturesWithTheReason) {
  run_group(2, [](const ProcessGroup& group) {
    if (group.rank() == 1) return;
    std::vector<at::Tensor> tensors{at::ones({3})};
    const auto future = group.c10d_process_group()->allreduce(tensors)->getFuture();
    const auto text = message_of<CommunicationError>([&] { future->waitAndThrow(); });
    EXPECT_TRUE(
        contains_all(text, {"rank 0 of 2: all_reduce #1 (float32, 3 elements, sum) failed: rank 1 left"}));
  });
}

/// Nobody waits for it, and it must not wait for anybody.
TEST(SharedMemory, RunsWhatNobodyWaitsFor) {
  run_group(2, [](const ProcessGroup& group) {
    const at::Tensor tensor = at::ones({3});
    const Work work = group.all_reduce_async(tensor);
    for (int i = 0; i < 30'000 && !work.is_completed(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(tensor[0].item<float>(), 2);
  });
}

TEST(SharedMemory, NamesBothSidesOfADisagreement) {
  run_group(2, [](const ProcessGroup& group) {
    const at::Tensor tensor = at::ones({6}, group.rank() == 0 ? at::kFloat : at::kInt);
    const auto text = message_of<CommunicationError>([&] { group.all_reduce(tensor); });
    EXPECT_TRUE(contains_all(text, {"rank 0 called all_reduce #1 (float32, 6 elements, sum)",
                                    "rank 1 called all_reduce #1 (int32, 6 elements, sum)"}));
  });
}

TEST(SharedMemory, CarriesBooleansAndComplexNumbers) {
  run_group(2, [](const ProcessGroup& group) {
    const at::Tensor flags = at::tensor({1, 0, group.rank()}, at::kInt).to(at::kBool);
    group.all_reduce(flags, ReduceOp::max);
    EXPECT_TRUE(at::equal(flags, at::tensor({1, 0, 1}, at::kInt).to(at::kBool)));
    const at::Tensor complex = at::complex(at::full({3}, 1.0 * group.rank()), at::ones({3}));
    group.broadcast(complex, 1);
    EXPECT_TRUE(at::equal(complex, at::complex(at::ones({3}), at::ones({3}))));
  });
}

TEST(SharedAllocation, OutlivesItsGroup) {
  at::Tensor kept;
  run_group(2, [&](const ProcessGroup& group) {
    const auto heap = comm::shared_heap_of(*group.c10d_process_group());
    at::Tensor tensor;
    {
      const comm::SharedAllocation scope(group);
      tensor = at::ones({100'000});
      EXPECT_LT(heap->offset_of(at::ones({100}).data_ptr(), 400), 0);
    }
    EXPECT_GE(heap->offset_of(tensor.data_ptr(), tensor.nbytes()), 0);
    EXPECT_LT(heap->offset_of(at::ones({100'000}).data_ptr(), 400'000), 0);
    group.all_reduce(tensor);
    if (group.rank() == 1) kept = tensor;
  });
  EXPECT_EQ(kept.sum().item<float>(), 200'000);
  kept += 1;
  EXPECT_EQ(kept.clone()[99'999].item<float>(), 3);
}

/// Gradients lie in shared memory, and training gives the bits that it gives over Gloo.
TEST(SharedAllocation, ServesDistributedDataParallel) {
  run_both(2, [](const ProcessGroup& shared, const ProcessGroup& gloo) {
    const auto train = [](const ProcessGroup& group) {
      auto model = std::make_shared<torch::nn::LinearImpl>(300, 200);
      {
        const at::NoGradGuard no_grad;
        model->weight.fill_(0.01);
        model->bias.fill_(0.5);
      }
      DistributedDataParallel ddp(model, group, {.gradient_as_bucket_view = true});
      for (int step = 0; step < 3; ++step) {
        const at::Tensor input = random_tensor(at::kFloat, group.rank(), 4 * 300).view({4, 300}) * (step + 1);
        ddp(input).square().sum().backward();
        const at::NoGradGuard no_grad;
        model->weight -= model->weight.grad() * 1e-4;
        if (step < 2) ddp.zero_grad();
      }
      return model;
    };
    const auto ours = train(shared);
    const auto theirs = train(gloo);
    EXPECT_TRUE(at::equal(ours->weight, theirs->weight));
    const auto heap = comm::shared_heap_of(*shared.c10d_process_group());
    EXPECT_GE(heap->offset_of(ours->weight.grad().data_ptr(), 4), 0);
  });
}

}  // namespace
}  // namespace lockstep
