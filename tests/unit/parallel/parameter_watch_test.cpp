// What users do to a module between wrapping it and the next forward or backward: gradients are averaged, or
// an error names the parameters and the cure.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>

#include <map>
#include <sstream>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;

struct PairImpl : torch::nn::Module {
  PairImpl() {
    body = register_module("body", torch::nn::Linear(3, 4));
    head = register_module("head", torch::nn::Linear(4, 2));
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(0.5);
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::tanh(body(x))); }
  torch::nn::Linear body{nullptr}, head{nullptr};
};
TORCH_MODULE(Pair);

/// A batch norm whose output depends on no other rank.
struct CriticImpl : torch::nn::Module {
  CriticImpl() {
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    last = register_module("last", torch::nn::Linear(3, 1));
    positions = register_buffer("positions", torch::arange(3));
    const at::NoGradGuard no_grad;
    last->weight.fill_(0.5);
    last->bias.fill_(0.25);
  }
  /// The index saves its buffer for backward.
  at::Tensor forward(const at::Tensor& x) { return last(norm(x).index_select(1, positions)); }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear last{nullptr};
  at::Tensor positions;
};
TORCH_MODULE(Critic);

at::Tensor input_of(int rank, int step = 0) {
  return torch::arange(12, at::kFloat).view({4, 3}).mul(0.3).add(rank * 2 + step).sin();
}

/// The gradient of `parameter` has the same bits on all ranks, which have different inputs.
bool is_averaged(const ProcessGroup& group, const at::Tensor& parameter) {
  if (!parameter.grad().defined()) return false;
  const auto all = group.all_gather(parameter.grad().contiguous());
  return std::all_of(all.begin(), all.end(), [&](const auto& one) { return torch::equal(one, all.front()); });
}

bool all_averaged(const ProcessGroup& group, const torch::nn::Module& module) {
  bool result = true;
  for (const auto& parameter : module.parameters()) result = is_averaged(group, parameter) && result;
  return result;
}

TEST(ParameterWatch, AfterLoadingIntoAWrappedModuleGradientsAreStillAveraged) {
  Pair other;
  other->body->weight.data().fill_(0.25);
  std::ostringstream saved;
  torch::save(other, saved);
  for (const bool finds_unused : {false, true}) {
    run_group(2, [&](const ProcessGroup& group) {
      Pair net;
      DistributedDataParallel ddp(net, group, {.find_unused_parameters = finds_unused});
      for (int step = 0; step < 4; ++step) {
        ddp.zero_grad();
        if (step != 2) {  // Also twice before a forward.
          std::istringstream file(saved.str());
          torch::load(net, file);
        }
        ddp(input_of(group.rank(), step)).square().sum().backward();
        EXPECT_TRUE(all_averaged(group, *net)) << "step " << step;
        EXPECT_FLOAT_EQ(net->body->weight[0][0].item<float>(), 0.25F);
      }
    });
  }
}

/// The graph has the accumulators of the values before.
TEST(ParameterWatch, ALoadBetweenAForwardAndItsBackwardDoesToo) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    const at::Tensor loss = ddp(input_of(group.rank())).sum() + net->head->bias.sum();
    {
      const at::NoGradGuard no_grad;
      net->head->bias.set_(torch::ones({2}));
    }
    const at::Tensor next = ddp(input_of(group.rank(), 1)).sum();
    loss.backward();
    EXPECT_TRUE(all_averaged(group, *net));
    ddp.zero_grad();
    next.backward();
    EXPECT_TRUE(all_averaged(group, *net));
  });
}

TEST(ParameterWatch, LoadedStridesAreThoseOfTheBeginning) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Conv2d net(3, 4, 2);
    DistributedDataParallel ddp(net, group);
    const at::Tensor values = net->weight.detach().clone();
    if (group.rank() == 0)
      net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    for (int step = 0; step < 3; ++step) {  // Buckets are made anew after the first backward.
      ddp.zero_grad();
      ddp(torch::arange(54, at::kFloat).view({2, 3, 3, 3}).add(group.rank()).sin()).square().sum().backward();
      EXPECT_TRUE(all_averaged(group, *net)) << "step " << step;
    }
    EXPECT_TRUE(net->weight.is_contiguous());
    EXPECT_TRUE(torch::equal(net->weight.detach(), values));
  });
}

TEST(ParameterWatch, AConversionIsNamed) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    net->to(at::kDouble);
    EXPECT_THROWS(ddp(input_of(0).to(at::kDouble)), UsageError, "'body.weight' was Float [4, 3] on cpu",
                  "is Double [4, 3] on cpu now", "make a new DistributedDataParallel on every rank");
    {
      const at::NoGradGuard no_grad;
      EXPECT_EQ(ddp(input_of(0).to(at::kDouble)).scalar_type(), at::kDouble) << "an evaluation";
    }
    // Back in its dtype, as after an evaluation in half precision.
    net->to(at::kFloat);
    ddp(input_of(group.rank())).sum().backward();
    EXPECT_TRUE(all_averaged(group, *net));
  });
}

TEST(ParameterWatch, WhatIsTrainedLaterIsNamedAndAveragedByANewWrapper) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    net->body->weight.requires_grad_(false);
    auto ddp = std::make_unique<DistributedDataParallel<Pair>>(net, group);
    ddp->operator()(input_of(group.rank())).sum().backward();
    EXPECT_TRUE(is_averaged(group, net->head->weight));
    net->body->weight.requires_grad_(true);
    EXPECT_THROWS((*ddp)(input_of(group.rank())), UsageError, "'body.weight' did not require a gradient",
                  "make a new DistributedDataParallel on every rank");
    ddp = std::make_unique<DistributedDataParallel<Pair>>(net, group);
    for (int step = 0; step < 3; ++step) {
      ddp->zero_grad();
      (*ddp)(input_of(group.rank(), step)).sum().backward();
      EXPECT_TRUE(all_averaged(group, *net));
    }
  });
}

TEST(ParameterWatch, AReplacedModuleIsNamed) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    ddp(input_of(group.rank())).sum().backward();
    net->head = net->replace_module("head", torch::nn::Linear(4, 3));
    EXPECT_THROWS(ddp(input_of(group.rank())), UsageError,
                  "'head.weight', 'head.bias' were registered after the module was wrapped");
    const auto alone = ddp.no_sync();
    EXPECT_THROWS(ddp(input_of(group.rank())), UsageError, "'head.weight'");
  });
}

TEST(ParameterWatch, ParametersThatWereFrozenAreNamedBeforeAGradientStaysLocal) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    ddp(input_of(group.rank())).sum().backward();
    ddp.zero_grad();
    net->head->bias.requires_grad_(false);
    const at::Tensor loss = ddp(input_of(group.rank())).sum();
    EXPECT_THROWS(loss.backward(), UsageError, "frozen after the module was wrapped: 'head.bias'",
                  "find_unused_parameters");
    EXPECT_FALSE(net->head->weight.grad().defined());
    net->head->bias.requires_grad_(true);
    ddp(input_of(group.rank())).sum().backward();
    EXPECT_TRUE(all_averaged(group, *net));
  });
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    net->head->bias.requires_grad_(false);
    ddp(input_of(group.rank())).sum().backward();
    EXPECT_TRUE(is_averaged(group, net->body->weight));
    EXPECT_FALSE(net->head->bias.grad().defined());
  });
}

/// As a generator is trained through a discriminator.
TEST(ParameterWatch, AModuleMayBeFrozenAsAWhole) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    const auto require = [&](bool on) {
      for (auto& parameter : net->parameters()) parameter.requires_grad_(on);
    };
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      ddp(input_of(group.rank(), step)).sum().backward();
      EXPECT_TRUE(all_averaged(group, *net));
      ddp.zero_grad();
      require(false);
      const at::Tensor made = input_of(group.rank()).requires_grad_();
      ddp(made).sum().backward();
      EXPECT_TRUE(made.grad().defined());
      require(true);
    }
  });
}

TEST(ParameterWatch, ASecondBackwardIsAveragedToo) {
  for (const bool view : {false, true}) {
    for (const bool hook : {false, true}) {
      run_group(2, [&](const ProcessGroup& group) {
        Pair net, twice;
        DistributedDataParallel ddp(net, group, {.gradient_as_bucket_view = view}), wanted(twice, group);
        if (hook) ddp.register_comm_hook(std::make_shared<AllReduceHook>());
        for (int step = 0; step < 3; ++step) {
          ddp.zero_grad(false);
          wanted.zero_grad();
          const at::Tensor output = ddp(input_of(group.rank(), step));
          output.sum().backward({}, /*retain_graph=*/true);
          output.square().sum().backward();
          const at::Tensor same = wanted(input_of(group.rank(), step));
          (same.sum() + same.square().sum()).backward();
          EXPECT_TRUE(all_averaged(group, *net)) << "step " << step;
          for (std::size_t i = 0; i < net->parameters().size(); ++i) {
            EXPECT_TRUE(torch::allclose(net->parameters()[i].grad(), twice->parameters()[i].grad()));
          }
        }
      });
    }
  }
}

TEST(ParameterWatch, TwoForwardsWithABackwardEachAreAveraged) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      const at::Tensor first = ddp(input_of(group.rank(), step)), second = ddp(input_of(group.rank(), 7));
      first.sum().backward();
      second.square().sum().backward();
      EXPECT_TRUE(all_averaged(group, *net)) << "step " << step;
    }
  });
}

TEST(ParameterWatch, ASecondBackwardThatCannotBeAveragedIsRefused) {
  for (const bool is_static : {false, true}) {
    run_group(2, [&](const ProcessGroup& group) {
      Pair net;
      DistributedDataParallel ddp(net, group,
                                  {.find_unused_parameters = !is_static, .static_graph = is_static});
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        const at::Tensor input = input_of(group.rank(), step).requires_grad_();
        const at::Tensor output = ddp(input);
        output.sum().backward({}, /*retain_graph=*/true);
        EXPECT_TRUE(all_averaged(group, *net));
        EXPECT_TRUE(torch::autograd::grad({output.sum()}, {input}, {}, true)[0].defined());
        EXPECT_THROWS(output.square().sum().backward(), UsageError, "add the losses and call backward once");
      }
    });
  }
}

/// A penalty that depends on parameters alone is the same on every rank.
TEST(ParameterWatch, ABackwardOutsideOfTheWrapperStaysLocal) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      ddp(input_of(group.rank(), step)).sum().backward();
      const at::Tensor before = net->body->weight.grad().clone();
      net->body->weight.square().sum().backward();
      EXPECT_TRUE(torch::equal(net->body->weight.grad(), before + 2 * net->body->weight.detach()));
      EXPECT_TRUE(all_averaged(group, *net));
    }
  });
}

TEST(ParameterWatch, AWrapperThatIsGoneBeforeBackwardIsNamed) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    at::Tensor loss;
    {
      DistributedDataParallel ddp(net, group);
      loss = ddp(input_of(group.rank())).sum();
    }
    EXPECT_THROWS(loss.backward(), UsageError, "destroyed between a forward and its backward",
                  "keep the wrapper until after backward");
  });
}

TEST(ParameterWatch, AfterABackwardThatThrewTheCauseIsNamed) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    ddp(input_of(group.rank())).sum().backward();
    ddp.zero_grad();
    // The last layer has its gradients by then.
    net->body->weight.register_hook([](const at::Tensor&) { throw Error("the user's hook fails"); });
    EXPECT_THROWS(ddp(input_of(group.rank())).sum().backward(), Error, "the user's hook fails");
    EXPECT_THROWS(ddp(input_of(group.rank())), Error, "the last backward ended with an exception",
                  "wrap the module again, on every rank");
  });
}

TEST(ParameterWatch, ACriticWithBatchNormSeesTwoBatchesInOneStep) {
  run_group(2, [&](const ProcessGroup& group) {
    Critic net, alone;
    alone->norm->running_mean.copy_(net->norm->running_mean);
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      const at::Tensor loss =
          ddp(input_of(group.rank(), step)).mean() - ddp(input_of(group.rank(), step + 9)).square().mean();
      loss.backward();
      EXPECT_TRUE(all_averaged(group, *net)) << "step " << step;
      // Without a wrapper: gradients of this rank's batches, and rank 0's statistics.
      for (auto& parameter : alone->parameters()) parameter.mutable_grad().reset();
      (alone(input_of(group.rank(), step)).mean() - alone(input_of(group.rank(), step + 9)).square().mean())
          .backward();
      at::Tensor mean = alone->norm->weight.grad().clone();
      group.all_reduce(mean, ReduceOp::avg);
      EXPECT_TRUE(torch::allclose(net->norm->weight.grad(), mean));
      if (group.rank() == 0) {
        EXPECT_TRUE(torch::equal(net->norm->running_mean, alone->norm->running_mean));
      }
    }
    const at::NoGradGuard no_grad;
    ddp(input_of(group.rank()));
    EXPECT_EQ(net->norm->num_batches_tracked.item<int>(), 7);
  });
}

/// A buffer that the program itself changes, and that the graph of the first forward has saved.
TEST(ParameterWatch, ABufferThatDiffersStillCountsAsChanged) {
  struct ScaleImpl : torch::nn::Module {
    ScaleImpl() {
      weight = register_parameter("weight", torch::ones({3}));
      scale = register_buffer("scale", torch::ones({3}));
    }
    at::Tensor forward(const at::Tensor& x) { return x * weight * scale; }
    at::Tensor weight, scale;
  };
  run_group(2, [&](const ProcessGroup& group) {
    auto net = std::make_shared<ScaleImpl>();
    DistributedDataParallel ddp(net, group);
    net->scale.add_(group.rank());
    const at::Tensor first = ddp(torch::ones({3}));
    net->scale.mul_(2 + group.rank());
    const at::Tensor second = ddp(torch::ones({3}));
    EXPECT_TRUE(torch::equal(net->scale, torch::full({3}, 2.0)));
    EXPECT_THROW((first + second).sum().backward(), c10::Error);
  });
}

TEST(ParameterWatch, SparseGradientsDoNotChangeTheirNeighbours) {
  struct TokensImpl : torch::nn::Module {
    TokensImpl() {
      words = register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 2).sparse(true)));
      places = register_parameter("places", torch::zeros({3, 2}));
    }
    at::Tensor forward(const at::Tensor& ids) { return words(ids) + places; }
    torch::nn::Embedding words{nullptr};
    at::Tensor places;
  };
  run_group(2, [&](const ProcessGroup& group) {
    auto net = std::make_shared<TokensImpl>();
    DistributedDataParallel ddp(net, group, {.sparse_parameters = {"words.weight"}});
    const at::Tensor factors = torch::arange(6, at::kFloat).view({3, 2}).add(1 + group.rank());
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      at::Tensor states = ddp(torch::tensor({0, 1, 2}));
      states.retain_grad();
      (states * factors).sum().backward();
      const at::Tensor mean = torch::arange(6, at::kFloat).view({3, 2}).add(1.5);
      EXPECT_TRUE(torch::equal(net->places.grad(), mean)) << "step " << step << net->places.grad();
      EXPECT_TRUE(torch::equal(net->words->weight.grad().to_dense().narrow(0, 0, 3), mean));
      EXPECT_TRUE(torch::equal(states.grad(), factors)) << "the gradient from above";
    }
  });
}

TEST(ParameterWatch, ASparseParameterThatIsNotUsedIsExplained) {
  struct TwoTablesImpl : torch::nn::Module {
    TwoTablesImpl() {
      for (const auto* name : {"a", "b"})
        tables.push_back(
            register_module(name, torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 2).sparse(true))));
    }
    at::Tensor forward(const at::Tensor& ids) { return tables[0](ids); }
    std::vector<torch::nn::Embedding> tables;
  };
  run_group(2, [&](const ProcessGroup& group) {
    auto net = std::make_shared<TwoTablesImpl>();
    DistributedDataParallel ddp(
        net, group, {.find_unused_parameters = true, .sparse_parameters = {"a.weight", "b.weight"}});
    EXPECT_THROWS(ddp(torch::tensor({0, 1})).sum().backward(), Error, "sparse_parameters got no gradient");
  });
}

TEST(ParameterWatch, APenaltyOnGradientsNeedsNoCreateGraphInBackward) {
  run_group(2, [&](const ProcessGroup& group) {
    Pair net;
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      const at::Tensor input = input_of(group.rank(), step).requires_grad_();
      const at::Tensor loss = ddp(input).square().sum();
      EXPECT_THROWS(loss.backward({}, true, /*create_graph=*/true), UsageError, "torch::autograd::grad");
      EXPECT_FALSE(net->body->weight.grad().defined());
      const at::Tensor slope = torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true)[0];
      (loss + slope.square().sum()).backward();
      EXPECT_TRUE(all_averaged(group, *net)) << "step " << step;
    }
  });
}

}  // namespace
}  // namespace lockstep
