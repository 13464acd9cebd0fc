// Collectives, messages and subgroups of the ranks of a job on their devices: shared memory on the CPU, NCCL
// or Gloo on GPUs. Each rank knows what every other one sends, and so what it has to receive.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp_job.hpp"
#include "on_device.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using Tensors = std::vector<at::Tensor>;

class GroupsOnDevice : public RanksOnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && is_cuda() && job().world_size < 2) GTEST_SKIP() << "needs several processes";
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, GroupsOnDevice, ::testing::Values("cpu", "cuda:0"));

/// What a rank sends: small whole numbers, so that sums and products are exact in every dtype.
at::Tensor sent_by(int rank, at::ScalarType dtype, std::int64_t length = 6) {
  return at::arange(length).add(rank).remainder(3).add(1).to(dtype);
}

/// The ranks `members` of a group, from 0, as those whose values they send.
struct Exchange {
  const ProcessGroup& group;
  at::ScalarType dtype;

  int rank() const { return group.rank(); }
  int size() const { return group.size(); }
  at::Tensor here(const at::Tensor& tensor) const { return tensor.to(group.device()); }
  at::Tensor own(std::int64_t length = 6) const { return here(sent_by(rank(), dtype, length)); }
  at::Tensor empty(std::int64_t length = 6) const { return here(at::zeros({length}, dtype)); }
  Tensors of_all(std::int64_t length = 6) const {
    Tensors all;
    for (int other = 0; other < size(); ++other) all.push_back(sent_by(other, dtype, length));
    return all;
  }
  static void expect(const at::Tensor& result, const at::Tensor& expected) {
    EXPECT_TRUE(at::equal(result.cpu(), expected)) << result << expected;
  }
};

at::Tensor reduced(const Tensors& values, ReduceOp op) {
  const at::Tensor all = at::stack(values).to(at::kDouble);
  switch (op) {
    case ReduceOp::sum:
      return all.sum(0);
    case ReduceOp::product:
      return all.prod(0);
    case ReduceOp::min:
      return all.amin(0);
    case ReduceOp::max:
      return all.amax(0);
    default:
      return all.mean(0);
  }
}

void expect_reductions(const Exchange& on) {
  std::vector<ReduceOp> ops{ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max};
  if (c10::isFloatingType(on.dtype)) ops.push_back(ReduceOp::avg);
  for (const auto op : ops) {
    const at::Tensor expected = reduced(on.of_all(), op).to(on.dtype);
    const auto expect_close_to = [&](const at::Tensor& result, const at::Tensor& part) {
      EXPECT_TRUE(at::allclose(result.cpu(), part, 1e-2, 0)) << result << part;
      if (op != ReduceOp::avg) Exchange::expect(result, part);
    };
    const at::Tensor everywhere = on.own();
    on.group.all_reduce(everywhere, op);
    expect_close_to(everywhere, expected);
    const int root = on.size() - 1;
    const at::Tensor at_root = on.own();
    on.group.reduce(at_root, root, op);
    if (on.rank() == root) expect_close_to(at_root, expected);
    // Part i of everyone's goes to rank i.
    const at::Tensor parts = reduced(on.of_all(2L * on.size()), op).to(on.dtype);
    const at::Tensor own = on.own(2L * on.size()), part = on.empty(2), listed = on.empty(2);
    on.group.reduce_scatter_tensor(part, own, op);
    expect_close_to(part, parts.narrow(0, 2L * on.rank(), 2));
    on.group.reduce_scatter(listed, own.chunk(on.size()), op);
    expect_close_to(listed, parts.narrow(0, 2L * on.rank(), 2));
  }
}

void expect_copies(const Exchange& on) {
  const Tensors all = on.of_all();
  const int root = on.size() - 1;
  const at::Tensor copy = on.own();
  on.group.broadcast(copy, root);
  Exchange::expect(copy, all.back());
  const Tensors gathered = on.group.all_gather(on.own());
  const Tensors at_root = on.group.gather(on.own(), root);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Exchange::expect(gathered.at(i), all[i]);
    if (on.rank() == root) Exchange::expect(at_root.at(i), all[i]);
  }
  const at::Tensor together = on.empty(6L * on.size());
  on.group.all_gather_into_tensor(together, on.own());
  Exchange::expect(together, at::cat(all));
  const at::Tensor scattered = on.empty();
  Tensors inputs;
  if (on.rank() == root)
    for (const auto& tensor : all) inputs.push_back(on.here(tensor));
  on.group.scatter(scattered, inputs, root);
  Exchange::expect(scattered, all[static_cast<std::size_t>(on.rank())]);
}

/// Rank i sends j + 1 numbers to rank j.
void expect_exchanges(const Exchange& on) {
  const int n = on.size();
  std::vector<std::int64_t> sizes, received_sizes(static_cast<std::size_t>(n), on.rank() + 1);
  Tensors outputs, expected;
  std::int64_t total = 0;
  for (int other = 0; other < n; ++other) {
    sizes.push_back(other + 1);
    total += other + 1;
    outputs.push_back(on.empty(on.rank() + 1));
    const std::int64_t before = std::int64_t{on.rank()} * (on.rank() + 1) / 2;
    expected.push_back(
        sent_by(other, on.dtype, std::int64_t{n} * (n + 1) / 2).narrow(0, before, on.rank() + 1));
  }
  const at::Tensor own = on.own(total);
  on.group.all_to_all(outputs, own.split_with_sizes(sizes));
  const at::Tensor single = on.empty(std::int64_t{n} * (on.rank() + 1));
  on.group.all_to_all_single(single, own, received_sizes, sizes);
  Exchange::expect(single, at::cat(expected));
  for (std::size_t i = 0; i < expected.size(); ++i) Exchange::expect(outputs[i], expected[i]);
}

void expect_messages(const Exchange& on) {
  const int n = on.size(), next = (on.rank() + 1) % n, previous = (on.rank() + n - 1) % n;
  const Tensors all = on.of_all();
  const at::Tensor from_previous = on.empty(), from_next = on.empty();
  if (on.rank() % 2 == 0 && next != 0) on.group.send(on.own(), next);
  if (on.rank() % 2 == 1) on.group.recv(from_previous, previous);
  if (on.rank() % 2 == 1) Exchange::expect(from_previous, all[static_cast<std::size_t>(previous)]);
  using Op = P2POp::Op;
  for (auto& work : on.group.batch_isend_irecv({{Op::isend, on.own(), next},
                                                {Op::irecv, from_previous, previous},
                                                {Op::isend, on.own(), previous},
                                                {Op::irecv, from_next, next}}))
    work.wait();
  Exchange::expect(from_previous, all[static_cast<std::size_t>(previous)]);
  Exchange::expect(from_next, all[static_cast<std::size_t>(next)]);
}

void expect_objects(const ProcessGroup& group) {
  const auto text_of = [](int rank) { return std::string(static_cast<std::size_t>(rank) * 100 + 1, 'a'); };
  std::vector<std::string> all;
  for (int rank = 0; rank < group.size(); ++rank) all.push_back(text_of(rank));
  EXPECT_EQ(group.all_gather_object(text_of(group.rank())), all);
  EXPECT_EQ(group.broadcast_object(text_of(group.rank()), group.size() - 1), all.back());
  EXPECT_EQ(group.scatter_object(all, 0), text_of(group.rank()));
}

void expect_all(const ProcessGroup& group, at::ScalarType dtype) {
  SCOPED_TRACE(c10::toString(dtype));
  const Exchange on{group, dtype};
  expect_reductions(on);
  expect_copies(on);
  expect_exchanges(on);
  if (group.size() > 1) expect_messages(on);
}

TEST_P(GroupsOnDevice, CarryEveryDtype) {
  run(all_ranks(), [&](Accelerator& accelerator) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kChar, at::kByte})
      expect_all(accelerator.process_group(), dtype);
    expect_objects(accelerator.process_group());
    accelerator.process_group().barrier();
  });
}

TEST_P(GroupsOnDevice, HaveSubgroups) {
  run(all_ranks(), [&](Accelerator& accelerator) {
    const ProcessGroup& group = accelerator.process_group();
    std::vector<int> even, but_first;
    for (int rank = 0; rank < group.size(); ++rank) {
      if (rank % 2 == 0) even.push_back(rank);
      if (rank > 0) but_first.push_back(rank);
    }
    const auto of_even = group.new_group(even), of_rest = group.new_group(but_first);
    EXPECT_EQ(of_even.has_value(), group.rank() % 2 == 0);
    EXPECT_EQ(of_rest.has_value(), group.rank() > 0);
    for (int round = 0; round < 2; ++round) {
      if (of_even) expect_all(*of_even, at::kFloat);
      expect_all(group, at::kLong);
      if (of_rest) expect_all(*of_rest, at::kFloat);
    }
    if (!of_rest || of_rest->size() < 2) return;
    // A part of a part.
    const auto last = of_rest->new_group({of_rest->size() - 1});
    if (last) expect_all(*last, at::kFloat);
    expect_objects(*of_rest);
  });
}

/// Each on a tensor of its own: without wait(), Gloo does not order operations on one of a GPU.
TEST_P(GroupsOnDevice, RunManyOperationsAtOnce) {
  run(all_ranks(), [&](Accelerator& accelerator) {
    const ProcessGroup& group = accelerator.process_group();
    const int ranks = group.size();
    Tensors sums, copies;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      sums.push_back(
          at::full({1000 * (i + 1)}, i + group.rank(), at::TensorOptions(device()).dtype(at::kFloat)));
      copies.push_back(sums.back().clone());
      works.push_back(group.all_reduce_async(sums.back()));
      works.push_back(group.broadcast_async(copies.back(), i % ranks));
    }
    std::for_each(works.rbegin(), works.rend(), [](Work& work) { work.wait(); });
    for (int i = 0; i < 20; ++i) {
      const auto number = static_cast<std::size_t>(i);
      EXPECT_TRUE((sums[number] == i * ranks + ranks * (ranks - 1) / 2).all().item<bool>()) << i;
      EXPECT_TRUE((copies[number] == i + i % ranks).all().item<bool>()) << i;
    }
  });
}

TEST_P(GroupsOnDevice, AShardedModelTrainsAsTheWholeOne) {
  const auto losses_of = [&](bool is_sharded) {
    Losses losses;
    run(
        all_ranks(),
        [&](Accelerator& accelerator) {
          Losses own = Job(accelerator).train(6);
          if (accelerator.process_index() == accelerator.num_processes() - 1 || is_cuda())
            losses = std::move(own);
        },
        sharded(is_sharded));
    return losses;
  };
  const Losses whole = losses_of(false), parts = losses_of(true);
  ASSERT_EQ(parts.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-4) << i;
}

}  // namespace
}  // namespace lockstep
