// What fully_shard relies on in the version of LibTorch that we build with. If one of these tests fails after
// an update, src/parallel/fsdp must change as well.

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

using Events = std::vector<std::string>;

/// Records when its backward runs.
struct Recorded : torch::autograd::Function<Recorded> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            Events* events, const std::string& name) {
    context->saved_data["events"] = reinterpret_cast<std::int64_t>(events);
    context->saved_data["name"] = name;
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto* const events = reinterpret_cast<Events*>(context->saved_data["events"].toInt());
    events->push_back(context->saved_data["name"].toStringRef());
    return {gradients[0], {}, {}};
  }
};

void set_memory(const at::Tensor& tensor, void* memory) {
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory, tensor.device()));
}

/// A weight is a view of a flat tensor whose memory is freed after forward and allocated again for backward.
TEST(LibTorchInterfaces, WhatAutogradSavedSeesTheMemoryOfTheMoment) {
  const at::Tensor memory = torch::arange(1, 9, at::kFloat);
  const at::Tensor flat = at::zeros({8});
  void* const own = flat.data_ptr();
  set_memory(flat, memory.data_ptr());
  at::Tensor weight = at::empty({0}).set_requires_grad(true);
  weight.set_data(flat.narrow(0, 2, 4).view({2, 2}));
  const at::Tensor input = torch::ones({1, 2}).set_requires_grad(true);
  const at::Tensor output = input.mm(weight);
  EXPECT_TRUE(at::equal(output.detach(), torch::tensor({{8.0F, 10.0F}})));

  weight.set_data(at::empty({3}));
  set_memory(flat, nullptr);
  const at::Tensor later = memory * 10;
  set_memory(flat, later.data_ptr());
  weight.set_data(flat.narrow(0, 2, 4).view({2, 2}));
  output.sum().backward();
  EXPECT_TRUE(at::equal(input.grad(), torch::tensor({{70.0F, 110.0F}}))) << input.grad();
  EXPECT_TRUE(at::equal(weight.grad(), torch::ones({2, 2})));
  set_memory(flat, own);
}

/// A gradient has the shape that the parameter has when it is added, and its dtype.
TEST(LibTorchInterfaces, AParameterChangesItsShapeBetweenForwards) {
  at::Tensor weight = torch::ones({2, 3}).set_requires_grad(true);
  const at::Tensor part = torch::ones({2}), whole = torch::full({2, 3}, 2.0F);
  for (int turn = 0; turn < 2; ++turn) {
    weight.set_data(part);
    EXPECT_TRUE(weight.is_leaf());
    weight.set_data(whole);
    (weight * weight).sum().backward();
    EXPECT_TRUE(at::equal(weight.grad(), torch::full({2, 3}, 4.0F)));
    const at::Tensor kept = weight.grad();
    weight.mutable_grad().reset();
    weight.set_data(part);
    weight.mutable_grad() = kept.reshape(-1).narrow(0, 0, 2);
    weight.mutable_grad().reset();
  }
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  EXPECT_EQ(torch::autograd::impl::try_get_grad_accumulator(weight), accumulator);
}

/// Nodes of later forwards run first, and a hook on an output runs before the nodes that computed it.
TEST(LibTorchInterfaces, BackwardRunsLaterForwardsFirstAndHooksBefore) {
  Events events;
  const at::Tensor input = torch::ones({2}).set_requires_grad(true);
  const auto unit = [&](const at::Tensor& states, const std::string& name) {
    const at::Tensor output = Recorded::apply(states, &events, name);
    output.register_hook([&events, name](const at::Tensor&) { events.push_back("hook of " + name); });
    return output;
  };
  // Both ends of the first are ready at the same time: by order alone, the second runs first.
  const at::Tensor first = unit(input, "first"), second = unit(input, "second");
  (first + second).sum().backward();
  EXPECT_EQ(events, (Events{"hook of second", "second", "hook of first", "first"}));
}

/// Once per backward, after its last node and before backward() returns, in the order in which they were
/// queued.
TEST(LibTorchInterfaces, CallbacksOfTheEngineEndABackward) {
  Events events;
  const at::Tensor input = torch::ones({2}).set_requires_grad(true);
  const at::Tensor output = Recorded::apply(input, &events, "node");
  output.register_hook([&](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([&] { events.push_back("end"); });
  });
  output.sum().backward({}, /*retain_graph=*/true);
  output.sum().backward();
  EXPECT_EQ(events, (Events{"node", "end", "node", "end"}));
}

/// A backward that throws calls none.
TEST(LibTorchInterfaces, ABackwardThatThrowsCallsNoCallback) {
  bool called = false;
  const at::Tensor input = torch::ones({2}).set_requires_grad(true);
  const at::Tensor between = input * 2, output = between * 3;
  output.register_hook([&](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([&] { called = true; });
  });
  between.register_hook([](const at::Tensor&) { throw std::runtime_error("a node fails"); });
  EXPECT_ANY_THROW(output.sum().backward());
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace lockstep
