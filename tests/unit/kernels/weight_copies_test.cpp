// Copies of weights in the dtype of autocast, which are kept from step to step.

#include "kernels/weight_copies.hpp"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <string>
#include <thread>

#include "lockstep/parallel/activation_checkpoint.hpp"
#include "lockstep/train/mixed_precision.hpp"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// A product in bfloat16, with the kept copy of the weight or a fresh one.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, bool keeps) {
    const at::Tensor copy =
        keeps ? kernels::low_precision_copy(weight, at::kBFloat16) : weight.to(at::kBFloat16);
    const at::Tensor rows = input.to(at::kBFloat16);
    context->save_for_backward({rows, copy});
    return rows.mm(copy);
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0].mm(saved[1].t()).to(at::kFloat), saved[0].t().mm(gradients[0]).to(at::kFloat), {}};
  }
};

/// Counts the calls of an operation in this thread.
class Calls {
 public:
  explicit Calls(std::string name) : name_(std::move(name)) {
    counted = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction& operation) -> std::unique_ptr<at::ObserverContext> {
          if (counted->name_ == operation.name()) ++counted->count_;
          return nullptr;
        }));
  }
  ~Calls() { at::removeCallback(handle_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  int count() const { return count_; }

 private:
  static thread_local Calls* counted;
  std::string name_;
  int count_ = 0;
  at::CallbackHandle handle_{};
};
thread_local Calls* Calls::counted = nullptr;

class WeightCopies : public ::testing::Test {
 protected:
  void SetUp() override { kernels::keep_copies_on_cpu(true); }
  void TearDown() override { kernels::keep_copies_on_cpu(false); }

  static Tensors weights(int count = 3) {
    torch::manual_seed(1);
    Tensors made;
    for (int i = 0; i < count; ++i) made.push_back(torch::randn({4, 4}).requires_grad_());
    return made;
  }
  static at::Tensor input() { return torch::linspace(-1, 1, 8).view({2, 4}); }

  static at::Tensor forward(const Tensors& weights, bool keeps = true) {
    return in_precision(at::kCPU, MixedPrecision::bf16, [&] {
      at::Tensor states = input();
      for (const auto& weight : weights) states = Product::apply(states, weight, keeps).tanh();
      return states.sum();
    });
  }
};

TEST_F(WeightCopies, OfSeveralLieOneAfterAnother) {
  const Tensors all = weights();
  const auto packed = [&] { return kernels::low_precision_copy(all, at::kBFloat16); };
  const auto exact = [&] {
    Tensors copies;
    for (const auto& weight : all) copies.push_back(weight.detach().to(at::kBFloat16));
    return at::cat(copies, 0);
  };
  const at::NoGradGuard no_grad;
  const void* memory = nullptr;
  for (int step = 0; step < 3; ++step) {
    const kernels::ForwardOfWeights forward;
    const Calls copies("aten::_foreach_copy_");
    const at::Tensor first = packed();
    EXPECT_EQ(copies.count(), 1);
    EXPECT_TRUE(packed().is_same(first));
    EXPECT_EQ(copies.count(), 1);
    EXPECT_TRUE(at::equal(first, exact()));
    if (step > 0) {
      EXPECT_EQ(first.const_data_ptr(), memory);
    }
    memory = first.const_data_ptr();
    // Unseen by versions: by the next forward.
    all[1].data().add_(1);
  }
  // What a graph holds is left to it, and one parameter that has changed makes the whole copy anew.
  const kernels::ForwardOfWeights forward;
  const at::Tensor held = packed(), before = held.clone();
  all[2].add_(1);
  const at::Tensor next = packed();
  EXPECT_NE(next.const_data_ptr(), held.const_data_ptr());
  EXPECT_TRUE(at::equal(held, before));
  EXPECT_TRUE(at::equal(next, exact()));
}

TEST_F(WeightCopies, OfSeveralAreForgottenWithOneOfThem) {
  Tensors all = weights();
  const auto before = kernels::count_weight_copies();
  {
    const kernels::ForwardOfWeights forward;
    kernels::low_precision_copy(all, at::kBFloat16);
  }
  EXPECT_EQ(kernels::count_weight_copies(), before + 1);
  all.pop_back();
  EXPECT_EQ(kernels::count_weight_copies(), before);
  // Those of fully sharded models are copied without being kept.
  const kernels::ForwardOfWeights forward;
  kernels::copy_never(all[0]);
  EXPECT_TRUE(at::equal(kernels::low_precision_copy(all, at::kHalf), at::cat(all, 0).to(at::kHalf)));
  EXPECT_EQ(kernels::count_weight_copies(), before);
}

/// As casts of autocast are: the same losses and weights, also where a program changes weights without a
/// trace, as torch::optim::SGD does.
TEST_F(WeightCopies, ChangeNoResults) {
  const auto trained = [](bool keeps) {
    const Tensors own = weights();
    torch::optim::SGD sgd(own, 0.1);
    Tensors results;
    for (int step = 0; step < 4; ++step) {
      sgd.zero_grad();
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        results.push_back(forward(own, keeps));
        results.back().backward();
      }
      const std::int64_t before = own[0]._version();
      sgd.step();
      EXPECT_EQ(own[0]._version(), before);
      const at::NoGradGuard no_grad;
      results.push_back(forward(own, keeps));
    }
    results.insert(results.end(), own.begin(), own.end());
    return results;
  };
  const Tensors kept = trained(true), fresh = trained(false);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], fresh[i])) << i;
}

TEST_F(WeightCopies, AreMadeByOneCallForAllWeights) {
  const Tensors own = weights();
  forward(own).backward();
  EXPECT_EQ(kernels::count_weight_copies(), 3U);
  const Calls calls("aten::_foreach_copy_");
  forward(own).backward();
  EXPECT_EQ(calls.count(), 1);
  // A weight that is used twice in a forward, and a forward of other weights.
  forward({own[0], own[1], own[0], own[2]}).backward();
  EXPECT_EQ(calls.count(), 2);
  const Tensors others = weights(2);
  forward(others).backward();
  EXPECT_EQ(calls.count(), 4) << "one by one";
  forward(others).backward();
  EXPECT_EQ(calls.count(), 5);
  forward(own).backward();
  EXPECT_EQ(calls.count(), 6);
}

/// Two forwards before a backward, with a step between them: each has the weights that it began with.
TEST_F(WeightCopies, StayWithTheForwardThatHasThem) {
  const auto gradients = [](bool keeps) {
    const Tensors own = weights();
    forward(own, keeps).backward();
    const at::Tensor first = forward(own, keeps);
    {
      const at::NoGradGuard no_grad;
      for (const auto& weight : own) weight.mul_(2);
    }
    const at::Tensor second = forward(own, keeps);
    for (const auto& weight : own) weight.mutable_grad().reset();
    (first + second).backward();
    return Tensors{own[0].grad(), own[1].grad(), own[2].grad()};
  };
  const Tensors kept = gradients(true), fresh = gradients(false);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], fresh[i])) << i;
}

TEST_F(WeightCopies, KeepTheirMemory) {
  const Tensors own = weights(1);
  const auto copy_of = [&] {
    const kernels::ForwardOfWeights forward;
    return kernels::low_precision_copy(own[0], at::kBFloat16);
  };
  const void* memory = copy_of().data_ptr();
  EXPECT_EQ(copy_of().data_ptr(), memory);
  const at::Tensor held = copy_of();
  const at::Tensor before = held.clone();
  {
    const at::NoGradGuard no_grad;
    own[0].add_(1);
  }
  const at::Tensor next = copy_of();
  EXPECT_TRUE(at::equal(held, before));
  EXPECT_TRUE(at::equal(next, own[0].to(at::kBFloat16)));
  EXPECT_EQ(held._version(), 0);
}

TEST_F(WeightCopies, FollowChangesWithinAForward) {
  const Tensors own = weights(1);
  const kernels::ForwardOfWeights forward;
  EXPECT_TRUE(
      at::equal(kernels::low_precision_copy(own[0], at::kBFloat16), own[0].detach().to(at::kBFloat16)));
  own[0].set_data(own[0].detach() * 3);
  EXPECT_TRUE(
      at::equal(kernels::low_precision_copy(own[0], at::kBFloat16), own[0].detach().to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(kernels::low_precision_copy(own[0], at::kHalf), own[0].detach().to(at::kHalf)));
  EXPECT_FALSE(kernels::low_precision_copy(own[0], at::kHalf).requires_grad());
}

TEST_F(WeightCopies, AreDroppedWithTheirParameters) {
  {
    const Tensors own = weights();
    forward(own);
    EXPECT_EQ(kernels::count_weight_copies(), 3U);
  }
  EXPECT_EQ(kernels::count_weight_copies(), 0U);
}

TEST_F(WeightCopies, AreNotKeptWhereTheyCouldBeWrong) {
  const Tensors own = weights();
  kernels::low_precision_copy(own[0], at::kBFloat16);
  EXPECT_EQ(kernels::count_weight_copies(), 0U) << "outside of a forward";
  const kernels::ForwardOfWeights forward;
  kernels::copy_never(own[0]);
  EXPECT_TRUE(
      at::equal(kernels::low_precision_copy(own[0], at::kBFloat16), own[0].detach().to(at::kBFloat16)));
  kernels::low_precision_copy(own[1] * 2, at::kBFloat16);
  kernels::low_precision_copy(own[1].detach().to(at::kDouble), at::kBFloat16);
  EXPECT_EQ(kernels::count_weight_copies(), 0U);
}

/// The recomputation finds the copies of its forward.
TEST_F(WeightCopies, AreFoundAgainByActivationCheckpoints) {
  const auto gradient = [](bool checkpoints) {
    const Tensors own = weights(2);
    const auto block = [own](const at::Tensor& states) {
      return Product::apply(Product::apply(states, own[0], true).tanh(), own[1], true).tanh();
    };
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = in_precision(at::kCPU, MixedPrecision::bf16, [&] {
        const at::Tensor states = input().requires_grad_();
        return (checkpoints ? checkpoint(block, states) : block(states)).sum();
      });
      own[0].mutable_grad().reset();
      const Calls calls("aten::_foreach_copy_");
      loss.backward();
      EXPECT_EQ(calls.count(), 0);
    }
    return own[0].grad();
  };
  EXPECT_TRUE(at::equal(gradient(true), gradient(false)));
}

}  // namespace
}  // namespace lockstep
