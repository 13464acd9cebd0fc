// What ranks hold of a fully sharded model, its optimizer's state, and what is rejected.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <cmath>
#include <limits>
#include <map>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/train/consolidated_optimizer.hpp"
#include "lockstep/train/gradient_accumulation.hpp"
#include "sharded_net.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

TEST(FullyShard, AGradientsNormIsThatOfAllRanks) {
  run_group(3, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    DistributedDataParallel ddp(one, group);
    auto model = fully_shard(other, group);
    net_loss(ddp, group.rank(), 0).backward();
    net_loss(model, group.rank(), 0).backward();
    std::vector<at::Tensor> norms;
    for (const auto& parameter : one->parameters()) norms.push_back(parameter.grad().norm());
    const at::Tensor expected = torch::stack(norms).norm();
    EXPECT_TRUE(torch::allclose(model.clip_grad_norm_(0.01), expected));
    EXPECT_TRUE(torch::allclose(model.clip_grad_norm_(1), torch::tensor(0.01F), 1e-3));
    EXPECT_THROWS(model.clip_grad_norm_(0), UsageError, "max_norm must be more than 0");
  });
}

/// A limit of infinity measures the norm, also an infinite one, and changes no gradient. A finite one makes
/// what PyTorch makes of it: NaN of the infinite gradients, and zeros.
TEST(FullyShard, AnInfiniteGradientIsClippedAsWithDistributedDataParallel) {
  run_group(2, [&](const ProcessGroup& group) {
    for (const double limit : {std::numeric_limits<double>::infinity(), 1.0}) {
      auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
      GradientAccumulation whole(group, AcceleratorOptions{});
      DistributedDataParallel ddp(one, group);
      auto model = fully_shard(other, group);
      net_loss(ddp, group.rank(), 0).backward();
      net_loss(model, group.rank(), 0).backward();
      one->parameters().front().mutable_grad().fill_(INFINITY);
      other->parameters().front().mutable_grad().fill_(INFINITY);
      EXPECT_TRUE(std::isinf(whole.clip_grad_norm_(one->parameters(), limit).item<double>()));
      EXPECT_TRUE(std::isinf(model.clip_grad_norm_(limit).item<double>()));
      for (std::size_t i = 0; i < one->parameters().size(); ++i) {
        const at::Tensor expected = one->parameters()[i].grad();
        const at::Tensor part = other->parameters()[i];
        const at::Tensor found = model.gather_full(part, part.grad());
        EXPECT_TRUE(found.equal(expected) ||
                    (i == 0 && expected.isnan().all().item<bool>() && found.isnan().all().item<bool>()))
            << limit << " " << i;
      }
    }
  });
}

/// In a group of one, gradients have the parameters' shapes; in a state, averages of a scalar have no
/// dimension, as step counts do.
TEST(FullyShard, AScalarIsClippedAndResumedToo) {
  struct Scalar : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", torch::ones({}));
    at::Tensor forward(const at::Tensor& input) { return (input * weight).sum(); }
  };
  for (const int ranks : {1, 2}) {
    run_group(ranks, [](const ProcessGroup& group) {
      const auto scalar = std::make_shared<Scalar>();
      auto model = fully_shard(scalar, group);
      model(torch::full({2}, 3.0)).backward();
      EXPECT_EQ(model.clip_grad_norm_(1).item<float>(), 6);
      const at::Tensor clipped = model.gather_full(scalar->weight, scalar->weight.grad());
      EXPECT_NEAR(clipped.item<float>(), 1, 1e-5);
      optim::AdamW optimizer({scalar->weight}), resumed({scalar->weight});
      optimizer.step();
      const auto state = consolidate_optimizer_state(model, optimizer);
      load_consolidated(model, resumed, state, "the state");
      const auto again = consolidate_optimizer_state(model, resumed);
      for (const auto& [name, tensor] : state.tensors)
        EXPECT_TRUE(torch::equal(again.tensors.at(name), tensor)) << name;
    });
  }
}

TEST(FullyShard, ARankHoldsItsShareOfWeightsGradientsAndState) {
  run_group(4, [&](const ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::Linear(101, 203), torch::nn::Linear(203, 307));
    double elements = 0;
    for (const auto& parameter : net->parameters()) elements += static_cast<double>(parameter.numel());
    auto model = fully_shard(net, group);
    optim::AdamW optimizer(net->parameters());
    model(torch::ones({2, 101})).sum().backward();
    optimizer.step();
    std::map<const void*, std::size_t> storages;
    const auto add = [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.numel() > 0)
        storages[tensor.storage().unsafeGetStorageImpl()] = tensor.storage().nbytes();
    };
    for (const auto& parameter : net->parameters()) {
      add(parameter);
      add(parameter.grad());
    }
    for (const auto& [name, tensor] : optimizer_state(optimizer, {}).tensors) {
      if (tensor.dim() > 0) add(tensor);
    }
    double bytes = 0;
    for (const auto& [storage, size] : storages) bytes += static_cast<double>(size);
    EXPECT_NEAR(bytes, 16 * elements / 4, 0.02 * 16 * elements / 4);
  });
}

TEST(FullyShard, ValuesWrittenToFullParametersAreKept) {
  run_group(3, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    auto model = fully_shard(net, group);
    {
      const auto whole = model.full_parameters();
      const at::NoGradGuard no_grad;
      net->last->weight.copy_(torch::arange(18).view({3, 6}));
    }
    const auto whole = model.full_parameters();
    EXPECT_TRUE(torch::equal(net->last->weight, torch::arange(18).view({3, 6})));
  });
}

TEST(FullyShard, TheOptimizersStateIsThatOfAWholeModelAndLoadsAnywhere) {
  const auto step = [](auto& model, torch::optim::Optimizer& optimizer, int rank, int number) {
    net_loss(model, rank, number).backward();
    optimizer.step();
    model.zero_grad();
  };
  run_group(3, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    DistributedDataParallel ddp(one, group);
    auto model = fully_shard(other, group);
    optim::AdamW whole(one->parameters(), {.lr = 0.01}), sharded(other->parameters(), {.lr = 0.01});
    for (int number = 0; number < 2; ++number) {
      step(ddp, whole, group.rank(), number);
      step(model, sharded, group.rank(), number);
    }
    const auto expected = optimizer_state(whole, ddp.parameters());
    const auto state = consolidate_optimizer_state(model, sharded);
    EXPECT_EQ(state.options, expected.options);
    ASSERT_EQ(state.tensors.size(), expected.tensors.size());
    for (const auto& [name, tensor] : expected.tensors)
      EXPECT_TRUE(torch::equal(state.tensors.at(name), tensor)) << name;

    // A new sharded model resumes from the state and the weights of the full one.
    auto third = seeded([] { return Net(); });
    auto resumed = fully_shard(third, group);
    {
      const auto full = resumed.full_parameters();
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < one->parameters().size(); ++i)
        third->parameters()[i].copy_(one->parameters()[i]);
    }
    optim::AdamW optimizer(third->parameters());
    load_consolidated(resumed, optimizer, expected, "the state");
    step(ddp, whole, group.rank(), 2);
    step(resumed, optimizer, group.rank(), 2);
    Tensors parameters;
    for (const auto& parameter : one->parameters()) parameters.push_back(parameter.detach());
    expect_equal(whole_parameters(resumed, *third), parameters, "parameter");

    auto wrong = expected;
    wrong.tensors.at("state.last.bias.exp_avg") = torch::zeros({4});
    EXPECT_THROWS(load_consolidated(resumed, optimizer, wrong, "the state"), DataError, "the state",
                  "'last.bias' has the shape [3], not [4]");
  });
}

TEST(FullyShard, AnInfinityOnOneRankSkipsTheStepOfAll) {
  run_group(3, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    auto model = fully_shard(net, group);
    optim::AdamW optimizer(net->parameters());
    optim::GradScaler scaler({.init_scale = 8}, group);
    const auto step = [&](bool overflows) {
      scaler.scale(net_loss(model, group.rank(), 0)).backward();
      if (overflows && group.rank() == 1) {
        for (auto& parameter : net->parameters()) parameter.mutable_grad().fill_(INFINITY);
      }
      const bool made = scaler.step(optimizer);
      scaler.update();
      model.zero_grad();
      return made;
    };
    EXPECT_FALSE(step(true));
    EXPECT_EQ(scaler.get_scale(), 4);
    EXPECT_TRUE(step(false));
  });
}

/// Loading between a forward and its backward would mix old and new values.
TEST(FullyShard, WhatWouldGiveWrongGradientsIsRefused) {
  run_group(2, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    auto model = fully_shard(net, group);
    const at::Tensor loss = net_loss(model, group.rank(), 0);
    const at::Tensor& weight = net->last->weight;
    model.take_part(weight, model.gather_full(weight, weight.detach()));
    EXPECT_THROWS(loss.backward(), UsageError, "between a forward and its backward");
    {
      const auto whole = model.full_parameters();
      EXPECT_THROWS(model.take_part(weight, weight), UsageError, "inside full_parameters()");
    }
    net_loss(model, group.rank(), 0).backward();
    // Both send the same number of bytes, but of different units, which the transport cannot see.
    net->order = group.rank() == 1 ? std::vector<std::size_t>{1, 0, 2} : std::vector<std::size_t>{0, 1, 2};
    EXPECT_THROWS(net_loss(model, group.rank(), 0).backward(), CommunicationError, "in the same order");
    net->order = {0, 1, 2};
    net_loss(model, group.rank(), 0).backward();
    // Gradients that are reduced with those of a later forward.
    const auto accumulate_in_other_order = [&] {
      const auto quiet = model.no_sync();
      net->order = group.rank() == 1 ? std::vector<std::size_t>{1, 0, 2} : std::vector<std::size_t>{0, 1, 2};
      net_loss(model, group.rank(), 0).backward();
      net->order = {0, 1, 2};
    };
    accumulate_in_other_order();
    EXPECT_THROWS(net_loss(model, group.rank(), 0).backward(), CommunicationError, "in the same order");
    // Those that are dropped do no harm.
    accumulate_in_other_order();
    model.zero_grad();
    net_loss(model, group.rank(), 0).backward();
    net->to(at::kDouble);
    EXPECT_THROWS(model(batch_of(0, 0)), UsageError, "'first.weight' was replaced", "before sharding");
  });
}

/// As in DistributedDataParallel: gradients that were accumulated under no_sync() are dropped, too.
TEST(FullyShard, DropsGradientsThatWereNotReduced) {
  run_group(2, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    auto model = fully_shard(net, group);
    const auto gradients = [&](bool accumulate) {
      if (accumulate) {
        const auto quiet = model.no_sync();
        net_loss(model, group.rank(), 1).backward();
      }
      model.zero_grad();
      net_loss(model, group.rank(), 0).backward();
      Tensors values;
      for (const auto& parameter : net->parameters()) values.push_back(parameter.grad().clone());
      model.zero_grad();
      return values;
    };
    const Tensors expected = gradients(false);
    expect_equal(gradients(true), expected, "gradient");
  });
}

TEST(FullyShard, WrongUseIsRefusedOnEveryRank) {
  run_group(2, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    auto model = fully_shard(net, group);
    EXPECT_THROWS(fully_shard(net, group), UsageError, "unit 'blocks.0' is fully sharded already");
    auto held = seeded([] { return Net(); });
    const DistributedDataParallel ddp(held, group);
    EXPECT_THROWS(fully_shard(held, group), UsageError, "'first.weight'", "DistributedDataParallel");
    torch::nn::Linear frozen(2, 2);
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
    EXPECT_THROWS(fully_shard(frozen, group), UsageError, "without a parameter that requires a gradient");
    torch::nn::Linear differs(2, 2 + group.rank());
    EXPECT_THROWS(fully_shard(differs, group), CommunicationError, "the ranks hold different models",
                  "'weight'");
    EXPECT_ANY_THROW(net->first(batch_of(0, 0))) << "at rest";
  });
}

/// The gradients of a step, whole and by name; undefined ones are left out.
std::map<std::string, at::Tensor> gradients_of(FullyShardedDataParallel<Net>& model, int rank) {
  model.zero_grad();
  net_loss(model, rank, 0).backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& entry : model->named_parameters()) {
    const at::Tensor& gradient = entry.value().grad();
    if (gradient.defined()) gradients.emplace(entry.key(), model.gather_full(entry.value(), gradient));
  }
  return gradients;
}

TEST(FullyShard, FreezingAParameterLeavesTheOthersOfItsUnitTrained) {
  run_group(2, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    auto model = fully_shard(net, group);
    const auto expected = gradients_of(model, group.rank());
    const std::size_t trained = model.parameters().size();
    for (const std::string name : {"blocks.0.norm.weight", "first.weight"}) {
      at::Tensor frozen = net->named_parameters()[name];
      frozen.requires_grad_(false);
      EXPECT_EQ(model.parameters().size(), trained - 1);
      const auto found = gradients_of(model, group.rank());
      EXPECT_EQ(found.size(), expected.size() - 1);
      for (const auto& [other, gradient] : expected) {
        EXPECT_EQ(found.contains(other), other != name);
        if (other != name) {
          EXPECT_TRUE(torch::equal(found.at(other), gradient)) << other;
        }
      }
      frozen.requires_grad_(true);
    }
  });
}

TEST(FullyShard, WhatIsUnfrozenLaterIsTrainedClippedAndCleared) {
  run_group(2, [&](const ProcessGroup& group) {
    auto whole = seeded([] { return Net(); });
    auto expected = fully_shard(whole, group);
    const auto gradients = gradients_of(expected, group.rank());
    const double norm = expected.clip_grad_norm_(1e-3).item<double>();
    auto net = seeded([] { return Net(); });
    const std::vector<std::string> late{"first.weight", "blocks.1.in.weight", "blocks.1.norm.bias"};
    for (const auto& name : late) net->named_parameters()[name].requires_grad_(false);
    auto model = fully_shard(net, group);
    EXPECT_EQ(gradients_of(model, group.rank()).size(), gradients.size() - late.size());
    for (const auto& name : late) net->named_parameters()[name].requires_grad_(true);
    const auto found = gradients_of(model, group.rank());
    for (const auto& [name, gradient] : gradients)
      EXPECT_TRUE(torch::equal(found.at(name), gradient)) << name;
    EXPECT_NEAR(model.clip_grad_norm_(1e-3).item<double>(), norm, 1e-6 * norm);
    model.zero_grad();
    for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
    if (group.rank() == 0) net->first->bias.requires_grad_(false);
    EXPECT_THROWS(net_loss(model, group.rank(), 0).backward(), CommunicationError,
                  "train the same parameters");
  });
}

TEST(FullyShard, AUnitMayReturnTheOutputOfAnother) {
  for (const bool reshards : {true, false}) {
    run_group(2, [&](const ProcessGroup& group) {
      auto short_net = seeded([] { return Net(); });
      short_net->order = {0, 2};
      auto expected = fully_shard(short_net, group);
      auto net = seeded([] { return Net(); });
      net->order = {0, 1, 2};
      auto model = fully_shard(net, group, {.reshard_after_forward = reshards});
      net->block(1).is_dropped = true;
      const auto wanted = gradients_of(expected, group.rank());
      for (int step = 0; step < 3; ++step) {
        const auto found = gradients_of(model, group.rank());
        EXPECT_EQ(found.size(), wanted.size());
        for (const auto& [name, gradient] : wanted)
          EXPECT_TRUE(torch::equal(found.at(name), gradient)) << name;
      }
      net->order = {1, 0, 2};  // The first one returns the root's tensor.
      const auto found = gradients_of(model, group.rank());
      for (const auto& [name, gradient] : wanted) EXPECT_TRUE(torch::equal(found.at(name), gradient)) << name;
      net->block(0).is_dropped = net->block(2).is_dropped = true;
      EXPECT_EQ(gradients_of(model, group.rank()).size(), 4U) << "only the root's";
      for (const std::size_t number : {0, 1, 2}) net->block(number).is_dropped = false;
      EXPECT_EQ(gradients_of(model, group.rank()).size(), 4U + 3 * 6);
    });
  }
}

TEST(FullyShard, DataThatParametersAreGivenWhileTheyAreWholeStay) {
  const auto make = [] { return torch::nn::Sequential(torch::nn::Linear(5, 6), torch::nn::Linear(6, 3)); };
  std::ostringstream saved;
  auto other = make();
  torch::save(other, saved);
  run_group(2, [&](const ProcessGroup& group) {
    auto net = seeded(make);
    auto model = fully_shard(net, group);
    const auto load = [&] {
      std::istringstream file(saved.str());
      torch::load(net, file);
    };
    {
      const auto whole = model.full_parameters();
      load();
    }
    expect_equal(whole_parameters(model, *net), other->parameters(), "loaded parameter");
    const at::Tensor weight = net->named_parameters()["1.weight"];
    {
      const auto whole = model.full_parameters();
      weight.set_data(torch::full({3, 6}, 2.0));
    }
    model(batch_of(group.rank(), 0)).sum().backward();
    {
      const auto whole = model.full_parameters();
      EXPECT_TRUE(torch::equal(weight.detach(), torch::full({3, 6}, 2.0)));
      weight.set_data(torch::zeros({6, 3}));
    }
    EXPECT_THROWS(model(batch_of(0, 0)), UsageError, "'1.weight' has the shape [3, 6]", "[6, 3]");
    load();
    EXPECT_THROWS(model(batch_of(0, 0)), UsageError, "was replaced or moved", "inside full_parameters()");
  });
}

TEST(FullyShard, APenaltyOnGradientsIsRefused) {
  run_group(2, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    auto model = fully_shard(net, group);
    const at::Tensor input = batch_of(group.rank(), 0).requires_grad_();
    const at::Tensor loss = model(input).square().mean();
    EXPECT_THROWS(torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true), UsageError,
                  "create_graph", "Use DistributedDataParallel");
    net_loss(model, group.rank(), 0).backward();
  });
}

struct OddLayoutsImpl : torch::nn::Module {
  explicit OddLayoutsImpl(int rank) {
    at::Tensor values = torch::arange(6, at::kFloat).view({2, 3}).add(1 - rank);
    if (rank == 0) values = values.t().contiguous().t();
    weight = register_parameter("weight", values);
    columns = register_buffer("columns", values.detach().clone());
    expanded = register_buffer("expanded", torch::full({1}, 2.0 - rank).expand({4}));
    every_second = register_buffer("every_second", torch::full({4}, 3.0 - rank).slice(0, 0, 4, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return x.matmul(weight.t()); }
  at::Tensor weight, columns, expanded, every_second;
};
TORCH_MODULE(OddLayouts);

TEST(FullyShard, StridesMayDifferBetweenRanksAndBuffersHaveAny) {
  run_group(2, [&](const ProcessGroup& group) {
    OddLayouts net(group.rank());
    auto model = fully_shard(net, group);
    const at::Tensor values = torch::arange(6, at::kFloat).view({2, 3}).add(1);
    EXPECT_TRUE(torch::equal(whole_parameters(model, *net)[0], values));
    EXPECT_TRUE(torch::equal(net->columns, values));
    EXPECT_TRUE(torch::equal(net->expanded, torch::full({4}, 2.0)));
    EXPECT_TRUE(torch::equal(net->every_second, torch::full({2}, 3.0)));
  });
}

}  // namespace
}  // namespace lockstep
