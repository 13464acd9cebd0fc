// NCCL by way of ProcessGroup, in a world of one: what a single GPU can show. Skipped where there is none.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/comm/cuda.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/batch.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/gpu.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using std::chrono::seconds;

const at::Device kCuda(at::kCUDA, 0);

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPU(); }

  static ProcessGroup alone(ProcessGroupOptions options = {.timeout = seconds(60)}) {
    options.device = kCuda;
    return ProcessGroup(0, 1, Store::in_memory(), options);
  }
  static c10::intrusive_ptr<c10d::Backend> backend_of(const ProcessGroup& group) {
    return group.c10d_process_group()->getBackend(at::kCUDA);
  }
};

at::Tensor values(at::ScalarType dtype) {
  return at::arange(1000, at::TensorOptions(kCuda)).remainder(7).to(dtype);
}

/// With one rank every collective gives back what it was given.
void expect_collectives(const ProcessGroup& group, at::ScalarType dtype) {
  SCOPED_TRACE(c10::toString(dtype));
  const at::Tensor own = values(dtype);
  for (const auto op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
    const at::Tensor reduced = own.clone();
    group.all_reduce(reduced, op);
    EXPECT_TRUE(at::equal(reduced, own));
  }
  const at::Tensor sent = own.clone(), received = at::zeros_like(own);
  group.broadcast(sent);
  EXPECT_TRUE(at::equal(sent, own));
  EXPECT_TRUE(at::equal(group.all_gather(own).at(0), own));
  group.all_gather_into_tensor(received, own);
  EXPECT_TRUE(at::equal(received, own));
  received.zero_();
  group.reduce_scatter(received, {own});
  EXPECT_TRUE(at::equal(received, own));
  received.zero_();
  group.reduce_scatter_tensor(received, own);
  EXPECT_TRUE(at::equal(received, own));
  received.zero_();
  group.all_to_all({received}, {own});
  EXPECT_TRUE(at::equal(received, own));
  group.barrier();
}

TEST_F(Nccl, IsBoundToItsDeviceWhenTheGroupIsMade) {
  const ProcessGroup group = alone();
  EXPECT_EQ(backend_of(group)->getBackendName(), "nccl");
  EXPECT_EQ(backend_of(group)->getBoundDeviceId(), kCuda);
  EXPECT_EQ(group.c10d_process_group()->getBoundDeviceId(), kCuda);
  EXPECT_FALSE(nccl_version().empty());
}

TEST_F(Nccl, CarriesEveryDtype) {
  const ProcessGroup group = alone();
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kChar, at::kByte})
    expect_collectives(group, dtype);
}

TEST_F(Nccl, LeavesCpuTensorsToOthers) {
  const ProcessGroup group = alone();
  const at::Tensor tensor = at::ones({5});
  group.all_reduce(tensor);
  EXPECT_TRUE(at::equal(tensor, at::ones({5})));
}

TEST_F(Nccl, ServesPartsOfAGroup) {
  for (const bool split : {true, false}) {
    const ProcessGroup group = alone({.timeout = seconds(60), .nccl_split = split});
    const auto part = group.new_group({0});
    ASSERT_TRUE(part);
    EXPECT_EQ(backend_of(group)->getGroupUid(), "world");
    EXPECT_EQ(backend_of(*part)->getGroupUid(), "world/sub/1");
    expect_collectives(*part, at::kFloat);
    expect_collectives(group, at::kFloat);
  }
}

using Forward = std::function<at::Tensor(const at::Tensor&)>;

/// The weights after two steps, of a model that is always the same at first and runs by what `prepare` makes
/// of it.
at::Tensor trained(const std::function<Forward(const torch::nn::Linear&)>& prepare) {
  torch::nn::Linear net(64, 32);
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : net->parameters())
      parameter.copy_(at::arange(parameter.numel()).remainder(11).sub(5).mul(0.01).view_as(parameter));
  }
  net->to(kCuda);
  torch::optim::SGD optimizer(net->parameters(), 0.125);
  const Forward forward = prepare(net);
  const at::Tensor rows = values(at::kFloat).narrow(0, 0, 640).view({10, 64}) * 0.125;
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    forward(rows).square().mean().backward();
    optimizer.step();
  }
  return net->weight.detach().cpu();
}

at::Tensor trained_over(const ProcessGroup& group, const std::shared_ptr<CommHook>& hook) {
  return trained([&](const torch::nn::Linear& net) -> Forward {
    const auto ddp = std::make_shared<DistributedDataParallel<torch::nn::Linear>>(net, group);
    if (hook) ddp->register_comm_hook(hook);
    return [ddp](const at::Tensor& rows) { return (*ddp)(rows); };
  });
}

TEST_F(Nccl, TrainsAsAModelAlone) {
  const at::Tensor expected = trained([](torch::nn::Linear net) -> Forward {
    return [net](const at::Tensor& rows) mutable { return net->forward(rows); };
  });
  const ProcessGroup group = alone();
  EXPECT_TRUE(at::equal(trained_over(group, nullptr), expected));
  EXPECT_TRUE(at::equal(trained_over(group, std::make_shared<AllReduceHook>()), expected));
  EXPECT_TRUE(
      at::allclose(trained_over(group, std::make_shared<CompressHook>(at::kHalf)), expected, 0, 1e-4));
  EXPECT_TRUE(
      at::allclose(trained_over(group, std::make_shared<CompressHook>(at::kBFloat16)), expected, 0, 1e-3));
}

TEST_F(Nccl, HasTheTimeoutOfItsGroup) {
  const ProcessGroup group = alone({.timeout = seconds(17)});
  EXPECT_EQ(backend_of(group)->getBackendOptions()->timeout, seconds(17));
}

/// Neither end hangs, and the process can make another group.
TEST_F(Nccl, CanBeAbortedAndShutDown) {
  for (const bool abort : {true, false}) {
    const ProcessGroup group = alone();
    expect_collectives(group, at::kFloat);
    if (abort) {
      backend_of(group)->abort();
    } else {
      backend_of(group)->shutdown();
    }
  }
  try {
    const ProcessGroup group = alone();
    expect_collectives(group, at::kFloat);
    throw Error("a rank fails");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a rank fails");
  }
  expect_collectives(alone(), at::kFloat);
}

/// What is queued when the group goes is done, and c10d has nothing to warn of.
TEST_F(Nccl, EndsCleanly) {
  const at::Tensor tensor = at::ones({1 << 20}, at::TensorOptions(kCuda));
  ::testing::internal::CaptureStderr();
  {
    const ProcessGroup group = alone();
    const auto part = group.new_group({0});
    ASSERT_TRUE(part);
    static_cast<void>(group.all_reduce_async(tensor));
    static_cast<void>(part->broadcast_async(tensor));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(at::equal(tensor.cpu(), at::ones({1 << 20})));
}

/// By c10d's own recorder, which sees their ends.
TEST_F(Nccl, EntersItsOperationsIntoTraces) {
  const testing::TemporaryFolder folder;
  const ProcessGroup group = alone();
  const at::Tensor tensor = values(at::kHalf);
  group.all_reduce(tensor);
  group.broadcast(tensor);
  group.reduce_scatter_tensor(at::empty_like(tensor), tensor);
  std::ifstream file(group.write_trace(folder.path().string()));
  const auto trace = nlohmann::json::parse(file);
  std::set<std::string> names;
  for (const auto& entry : trace.at("nccl").at("entries"))
    names.insert(entry.at("profiling_name").get<std::string>());
  for (const char* name : {"nccl:all_reduce", "nccl:broadcast", "nccl:_reduce_scatter_base"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST_F(Nccl, TakesBatchesFromPinnedMemory) {
  const at::Tensor rows = at::arange(1 << 20).view({64, -1});
  const Batch pinned = Batch{{"x", rows}}.pin_memory();
  EXPECT_TRUE(pinned["x"].is_pinned());
  const at::Tensor there = pinned.to(kCuda, true)["x"];
  alone().all_reduce(there);
  EXPECT_TRUE(at::equal(there.cpu(), rows));
}

}  // namespace
}  // namespace lockstep
