#include "lockstep/parallel/activation_checkpoint.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/unit.hpp"
#include "lockstep/train/mixed_precision.hpp"
#include "lockstep/train/trainer.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"
#include "unit/train/small_trainings.hpp"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

class BlockImpl : public torch::nn::Module, public Unit {
 public:
  explicit BlockImpl(double dropout)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))),
        in(register_module("in", torch::nn::Linear(8, 32))),
        out(register_module("out", torch::nn::Linear(32, 8))),
        drop(register_module("drop", torch::nn::Dropout(dropout))) {}

  at::Tensor forward(const at::Tensor& states) { return through(*this, &BlockImpl::body, states); }

  int runs = 0;
  /// What the last run computed in the checkpoint; does not keep it alive.
  c10::weak_intrusive_ptr<c10::StorageImpl> inner{c10::intrusive_ptr<c10::StorageImpl>()};

 private:
  at::Tensor body(const at::Tensor& states) {
    ++runs;
    const at::Tensor hidden = at::exp(at::tanh(in(norm(states))));
    inner = c10::weak_intrusive_ptr<c10::StorageImpl>(hidden.storage().getWeakStorageImpl());
    return states + drop(out(hidden));
  }

  torch::nn::LayerNorm norm;
  torch::nn::Linear in, out;
  torch::nn::Dropout drop;
};
TORCH_MODULE(Block);

/// Three blocks; the second is used twice.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(double dropout = 0) {
    torch::manual_seed(5);
    for (int i = 0; i < 3; ++i) blocks->push_back(Block(dropout));
    register_module("blocks", blocks);
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor states = input;
    for (const std::size_t number : {0, 1, 1, 2}) states = block(number).forward(states);
    return states;
  }
  BlockImpl& block(std::size_t number) { return *blocks->at<BlockImpl>(number).as<BlockImpl>(); }

  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Net);

at::Tensor numbers(at::IntArrayRef sizes, double salt = 0.3) {
  return torch::arange(c10::multiply_integers(sizes), at::kFloat).mul(0.7).add(salt).sin().view(sizes);
}

void expect_equal(const Tensors& one, const Tensors& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].defined(), other[i].defined()) << i;
    EXPECT_TRUE(!one[i].defined() || torch::equal(one[i], other[i])) << i;
  }
}

Tensors gradients_of(torch::nn::Module& model) {
  Tensors gradients;
  for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

/// The result of `loss()` after torch::manual_seed, the gradients of its backward, and a random number after.
template <class Model, class Loss>
Tensors trained(Model& model, const Loss& loss) {
  model->zero_grad();
  torch::manual_seed(11);
  const at::Tensor value = loss();
  value.backward();
  Tensors result = gradients_of(*model);
  result.push_back(value.detach());
  result.push_back(torch::rand({1}));
  return result;
}

template <class Model, class Loss>
void expect_the_same_with_checkpoints(Model& model, const Loss& loss) {
  const Tensors plain = trained(model, loss);
  set_activation_checkpointing(model);
  const Tensors checkpointed = trained(model, loss);
  set_activation_checkpointing(model, false);
  expect_equal(plain, checkpointed);
  expect_equal(plain, trained(model, loss));
}

TEST(ActivationCheckpoint, HasTheBitsOfNone) {
  for (const auto precision : {MixedPrecision::no, MixedPrecision::bf16}) {
    for (const double dropout : {0.0, 0.4}) {
      Net net(dropout);
      const at::Tensor input = numbers({6, 8});
      expect_the_same_with_checkpoints(net, [&] {
        // Ends before backward: the recomputation must restore it.
        const Autocast autocast(at::kCPU, precision);
        return net(input).square().sum();
      });
    }
  }
}

TEST(ActivationCheckpoint, KeepsNothingUntilBackwardAndRunsOnceMore) {
  Net net;
  set_activation_checkpointing(net);
  const at::Tensor loss = net(numbers({6, 8})).sum();
  for (const std::size_t number : {0, 1, 2}) EXPECT_TRUE(net->block(number).inner.expired()) << number;
  EXPECT_EQ(net->block(1).runs, 2);
  loss.backward();
  for (const std::size_t number : {0, 1, 2}) EXPECT_TRUE(net->block(number).inner.expired()) << number;
  EXPECT_EQ(net->block(0).runs, 2);
  EXPECT_EQ(net->block(1).runs, 4);
  set_activation_checkpointing(net, false);
  const at::Tensor kept = net(numbers({6, 8})).sum();
  EXPECT_FALSE(net->block(0).inner.expired());
}

TEST(ActivationCheckpoint, WithoutGradientsJustCalls) {
  Net net;
  set_activation_checkpointing(net);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(net(numbers({2, 8})).requires_grad());
  EXPECT_EQ(net->block(0).runs, 1);
}

TEST(ActivationCheckpoint, GraphsAreUsedTwiceInPartAndForSecondDerivatives) {
  Net net;
  const at::Tensor input = numbers({4, 8}).requires_grad_();
  const auto run = [&] {
    net->zero_grad();
    const at::Tensor loss = net(input).square().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    Tensors result = gradients_of(*net);
    const Tensors some{net->block(0).parameters().front(), input};
    for (const auto& gradient : torch::autograd::grad({loss}, some, {}, /*retain_graph=*/true))
      result.push_back(gradient);
    const at::Tensor first = torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true).front();
    net->zero_grad();
    first.square().sum().backward();
    for (const auto& gradient : gradients_of(*net)) result.push_back(gradient);
    result.push_back(input.grad());
    input.mutable_grad() = at::Tensor();
    return result;
  };
  const Tensors plain = run();
  set_activation_checkpointing(net);
  expect_equal(plain, run());
}

TEST(ActivationCheckpoint, TakesAnythingCallableAndNests) {
  torch::nn::Linear one(4, 4), two(4, 4);
  struct Pair {
    at::Tensor left, right;
  };
  int runs = 0;
  const auto inner = [&](const at::Tensor& x) {
    ++runs;
    return at::tanh(two(x));
  };
  const auto outer = [&](const Pair& pair, double scale) {
    return checkpoint(inner, at::tanh(one(pair.left)) * scale) + pair.right;
  };
  const auto run = [&](bool checkpointed) {
    const Pair pair{numbers({3, 4}), numbers({3, 4}, 1.5)};
    const at::Tensor result = checkpointed ? checkpoint(outer, pair, 0.5) : outer(pair, 0.5);
    one->zero_grad();
    two->zero_grad();
    checkpoint(one, result).square().sum().backward();
    return Tensors{one->weight.grad().clone(), two->bias.grad().clone()};
  };
  const Tensors nested = run(true);
  EXPECT_EQ(runs, 2);  // The inner checkpoint is part of the outer one.
  expect_equal(nested, run(false));
}

TEST(ActivationCheckpoint, WhatIsHeldGoesWithTheGraph) {
  const auto held = std::make_shared<int>(1);
  {
    const at::Tensor weight = numbers({3}).requires_grad_();
    const at::Tensor result = checkpoint([held](const at::Tensor& x) { return x.exp(); }, weight);
    EXPECT_GT(held.use_count(), 1);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(ActivationCheckpoint, ARecomputationThatDiffersIsAnErrorThatNamesTheUnit) {
  const at::Tensor weight = numbers({3}).requires_grad_();
  int runs = 0;
  const auto backward_of = [&](const std::function<at::Tensor(const at::Tensor&)>& function) {
    runs = 0;
    parallel::named_checkpoint("'h.3'", function, weight).sum().backward();
  };
  EXPECT_THROWS(backward_of([&](const at::Tensor& x) { return runs++ == 0 ? x.exp().sin() : x.exp(); }),
                Error, "the recomputation of 'h.3'", "tensors instead of");
  EXPECT_THROWS(backward_of([&](const at::Tensor& x) { return runs++ == 0 ? x.exp() : x.exp().sin(); }),
                Error, "the recomputation of 'h.3' saved more than 1 tensors");
  EXPECT_THROWS(
      backward_of([&](const at::Tensor& x) { return runs++ == 0 ? x.exp() : x.narrow(0, 0, 2).exp(); }),
      Error, "saved Float [2] as tensor 0, which was Float [3]");
  EXPECT_THROWS(backward_of([&](const at::Tensor& x) {
                  if (runs++ == 1) throw std::runtime_error("no more memory");
                  return x.exp();
                }),
                std::runtime_error, "no more memory");
  backward_of([](const at::Tensor& x) { return x.exp(); });  // Training can continue.
}

TEST(ActivationCheckpoint, AnInputThatIsChangedInPlaceAfterwardsIsAnError) {
  const auto leaf = [] { return torch::linspace(-1, 1, 4).requires_grad_(); };
  const auto twice = [](const at::Tensor& value) { return torch::tanh(value * 2); };
  {
    at::Tensor x = leaf() * 1;
    x.add_(checkpoint(twice, x));
    EXPECT_THROWS(x.sum().backward(), Error, "[4]", "changed in place after its forward", "Give it a copy");
  }
  {
    at::Tensor x = leaf() * 1, other = torch::ones({4});
    const std::vector<at::Tensor> list{x, other};
    const at::Tensor y =
        checkpoint([](const std::vector<at::Tensor>& both) { return both[0].tanh() * both[1]; }, list);
    other.add_(1);
    EXPECT_THROWS(y.sum().backward(), Error, "changed in place after its forward");
  }
  {
    // Not an argument, but autograd saves it.
    const at::Tensor x = leaf();
    at::Tensor factor = torch::ones({4});
    const at::Tensor y = checkpoint([factor](const at::Tensor& value) { return value * factor; }, x);
    factor.mul_(3);
    EXPECT_THROWS(y.sum().backward(), Error, "changed in place after its forward");
  }
  {
    // Its output is not its input, and memory that the function writes itself has the same values again.
    const at::Tensor x = leaf();
    at::Tensor scratch = torch::zeros({4});
    const auto scaled = [scratch](const at::Tensor& value) {
      const at::NoGradGuard no_grad;
      return scratch.copy_(value.detach() + 1);
    };
    const auto run = [scaled](const at::Tensor& value) { return value.tanh() * scaled(value); };
    at::Tensor first = checkpoint(run, x);
    first.add_(1);
    at::Tensor y = first * 2 + checkpoint(run, x.detach() + 5).sum();
    y.sum().backward();
    const at::Tensor tanh = x.detach().tanh();
    EXPECT_TRUE(torch::allclose(x.grad(), 2 * (1 - tanh.square()) * (x.detach() + 1)));
  }
}

TEST(ActivationCheckpoint, MisuseIsRefused) {
  torch::nn::Linear linear(3, 3);
  const at::Tensor input = numbers({2, 3});
  // The second layer's gradient passes through its weight.
  const at::Tensor two = checkpoint([&](const at::Tensor& x) { return linear(linear(x)); }, input).sum();
  {
    const at::NoGradGuard no_grad;
    linear->weight.mul_(2);
  }
  EXPECT_THROWS(two.backward(), Error, "a parameter Float [3, 3] of the checkpointed function was changed");

  const at::Tensor weight = numbers({3}).requires_grad_();
  const auto with_backward = [](const at::Tensor& x) {
    const at::Tensor loss = x.exp().sum();
    loss.backward();
    return loss;
  };
  EXPECT_THROWS(checkpoint(with_backward, weight), UsageError, "runs a backward through itself");
  const at::Tensor product = weight.exp();
  product.register_hook([&](const at::Tensor& gradient) {
    return checkpoint([](const at::Tensor& g) { return g * 2; }, gradient);
  });
  const at::Tensor loss = product.sum();
  EXPECT_THROWS(loss.backward({}, {}, /*create_graph=*/true), UsageError, "called inside a backward");

  torch::nn::Sequential plain(torch::nn::Linear(3, 3));
  EXPECT_THROWS(set_activation_checkpointing(plain), UsageError, "the model has no units",
                "lockstep::through");

  // An exception in forward leaves the thread's state unchanged.
  const auto failing = [](const at::Tensor& x) -> at::Tensor {
    if (x.numel() == 3) throw std::runtime_error("broken sample");
    return x;
  };
  EXPECT_THROW(checkpoint(failing, weight), std::runtime_error);
  EXPECT_TRUE(parallel::may_checkpoint());
}

TEST(ActivationCheckpoint, DistributedDataParallelNeedsNoStaticGraph) {
  testing::run_group(2, [&](const ProcessGroup& group) {
    const auto run = [&](bool checkpointed) {
      Net net;
      {
        const at::NoGradGuard no_grad;
        for (auto& parameter : net->parameters()) parameter.copy_(numbers(parameter.sizes()));
      }
      DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 0.0005});
      set_activation_checkpointing(net, checkpointed);
      for (int step = 0; step < 3; ++step) {
        const at::Tensor input = numbers({4, 8}, 0.2 + step + group.rank());
        ddp(input).square().sum().backward();
        const at::NoGradGuard no_grad;
        for (auto& parameter : net->parameters()) parameter.sub_(parameter.grad(), 0.01);
        ddp.zero_grad();
      }
      return net->parameters();
    };
    expect_equal(run(false), run(true));
  });
}

TEST(ActivationCheckpoint, LayersOfTheModelsAreUnits) {
  const at::Tensor ids = torch::arange(24).remainder(13).view({3, 8});
  const at::Tensor mask = torch::ones({3, 8}, at::kLong).index_put_({0, 7}, 0);
  torch::manual_seed(3);
  models::Gpt2LMHeadModel gpt2(
      models::Gpt2Config{.vocab_size = 13, .n_positions = 8, .n_embd = 8, .n_layer = 2, .n_head = 2});
  expect_the_same_with_checkpoints(gpt2, [&] { return models::causal_lm_loss(gpt2(ids, mask), ids); });
  models::BertForSequenceClassification bert(models::BertConfig{.vocab_size = 13,
                                                                .hidden_size = 8,
                                                                .num_hidden_layers = 2,
                                                                .num_attention_heads = 2,
                                                                .intermediate_size = 16});
  expect_the_same_with_checkpoints(bert, [&] { return bert(ids, mask).square().sum(); });
  models::BartForConditionalGeneration bart(models::BartConfig{.vocab_size = 13,
                                                               .d_model = 8,
                                                               .encoder_layers = 1,
                                                               .encoder_attention_heads = 2,
                                                               .encoder_ffn_dim = 16,
                                                               .decoder_layers = 1,
                                                               .decoder_attention_heads = 2,
                                                               .decoder_ffn_dim = 16});
  expect_the_same_with_checkpoints(bart, [&] {
    return models::sequence_loss(bart(ids, mask, bart->decoder_inputs(ids)), ids);
  });
  set_activation_checkpointing(gpt2);
  EXPECT_EQ(models::generate(gpt2, ids.narrow(1, 0, 4), {.max_new_tokens = 2}).size(1), 6);
}

TEST(ActivationCheckpoint, IsTrainersGradientCheckpointing) {
  const testing::TemporaryFolder folder;
  const auto trained_by = [&](bool on) {
    Net net(0.3);
    const auto model = wrap_model(net, [](auto& prepared, const Batch& batch) {
      return Batch{{"loss", prepared(batch["x"]).square().mean()}};
    });
    TrainingArguments args = testing::arguments(folder);
    args.gradient_checkpointing = on;
    const auto data = std::make_shared<TensorDataset>(Batch{{"x", numbers({20, 8})}});
    Trainer(args, {.model = model, .train_dataset = data}).train();
    EXPECT_EQ(net->block(0).activation_checkpointing(), on);
    return net->parameters();
  };
  expect_equal(trained_by(false), trained_by(true));
  TrainingArguments args = testing::arguments(folder);
  args.gradient_checkpointing = true;
  EXPECT_THROWS(Trainer(args, {.model = testing::small_model()}), UsageError, "the model has no units");
}

/// Behavior that the library uses beyond LibTorch's documented interfaces: autograd asks the default engine
/// for hooks for each saved tensor, on the thread of the operation, and that engine may be ours.
TEST(ActivationCheckpoint, LibTorchAsksTheDefaultEngineForHooks) {
  const at::Tensor weight = numbers({3}).requires_grad_();
  int runs = 0;
  const at::Tensor result = checkpoint(
      [&](const at::Tensor& x) {
        ++runs;
        return x.exp();
      },
      weight);
  auto& engine = torch::autograd::Engine::get_default_engine();
  EXPECT_NE(&engine, &torch::autograd::Engine::get_base_engine());
  EXPECT_EQ(engine.get_default_saved_variable_hooks(), nullptr);  // Outside of checkpoints.
  result.sum().backward();
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(torch::equal(weight.grad(), weight.detach().exp()));
}

}  // namespace
}  // namespace lockstep
