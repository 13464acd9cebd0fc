#include "lockstep/parallel/distributed_data_parallel.hpp"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <map>

#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::message_of;
using testing::run_group;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int hidden = 7) {
    first = register_module("first", torch::nn::Linear(5, hidden));
    norm = register_module("norm", torch::nn::BatchNorm1d(hidden));
    second = register_module("second", torch::nn::Linear(hidden, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

/// Two heads, one of which a batch may use, and a head that is never used.
struct ForkImpl : torch::nn::Module {
  ForkImpl() {
    left = register_module("left", torch::nn::Linear(4, 2));
    right = register_module("right", torch::nn::Linear(4, 2));
    never = register_module("never", torch::nn::Linear(4, 2));
  }
  at::Tensor forward(const at::Tensor& x, bool use_left) { return use_left ? left(x) : right(x); }
  torch::nn::Linear left{nullptr}, right{nullptr}, never{nullptr};
};
TORCH_MODULE(Fork);

struct TwoOutputsImpl : torch::nn::Module {
  TwoOutputsImpl() {
    left = register_module("left", torch::nn::Linear(4, 2));
    right = register_module("right", torch::nn::Linear(4, 2));
  }
  std::tuple<at::Tensor, std::map<std::string, at::Tensor>> forward(const at::Tensor& x) {
    return {left(x), {{"right", right(x)}}};
  }
  torch::nn::Linear left{nullptr}, right{nullptr};
};
TORCH_MODULE(TwoOutputs);

/// A custom output type, one output of which may be missing.
struct Outputs {
  at::Tensor logits;
  at::Tensor attention;
};
void visit_tensors_of(Outputs& outputs, const auto& visit) {
  if (outputs.logits.defined()) visit(outputs.logits);
  if (outputs.attention.defined()) visit(outputs.attention);
}
struct OwnOutputsImpl : torch::nn::Module {
  OwnOutputsImpl() {
    used = register_module("used", torch::nn::Linear(4, 2));
    unused = register_module("unused", torch::nn::Linear(4, 2));
  }
  Outputs forward(const at::Tensor& x) { return {used(x), at::Tensor()}; }
  torch::nn::Linear used{nullptr}, unused{nullptr};
};
TORCH_MODULE(OwnOutputs);

/// Whole numbers, so that sums are exact in any order.
void fill_with_whole_numbers(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  int start = 1;
  for (auto& parameter : module.parameters()) {
    parameter.copy_((torch::arange(parameter.numel()) + start++).remainder(5).sub(2).view(parameter.sizes()));
  }
}

at::Tensor whole_batch(int rank, int step = 0) {
  return (torch::arange(20).view({4, 5}) * (rank + 1) + step).remainder(7).sub(3).to(torch::kFloat);
}

class EveryWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, EveryWorld, ::testing::Values(1, 2, 4));

/// The gradients of the mean over the ranks of each rank's sum(net(batch)), computed by one rank for all.
std::vector<at::Tensor> averaged_gradients(torch::nn::Linear& net, int size, int steps) {
  for (int rank = 0; rank < size; ++rank) {
    for (int step = 0; step < steps; ++step) net(whole_batch(rank, step)).sum().div(size).backward();
  }
  std::vector<at::Tensor> result;
  for (auto& parameter : net->parameters()) {
    result.push_back(parameter.grad().clone());
    parameter.mutable_grad().reset();
  }
  return result;
}

TEST_P(EveryWorld, GradientsAreTheExactMean) {
  run_group(GetParam(), [&](const ProcessGroup& group) {
    torch::nn::Linear net(5, 3), reference(5, 3);
    fill_with_whole_numbers(*net);
    fill_with_whole_numbers(*reference);
    const auto expected = averaged_gradients(reference, group.size(), 1);
    for (const bool view : {false, true}) {
      DistributedDataParallel ddp(net, group, {.gradient_as_bucket_view = view});
      for (int repeat = 0; repeat < 3; ++repeat) {  // The buckets are rebuilt after the first.
        ddp.zero_grad(repeat != 2);
        ddp(whole_batch(group.rank())).sum().backward();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(torch::equal(net->parameters()[i].grad(), expected[i])) << "view " << view;
        }
      }
      ddp.zero_grad();
    }
  });
}

TEST_P(EveryWorld, NoSyncAccumulates) {
  run_group(GetParam(), [&](const ProcessGroup& group) {
    torch::nn::Linear net(5, 3), reference(5, 3);
    fill_with_whole_numbers(*net);
    fill_with_whole_numbers(*reference);
    const auto expected = averaged_gradients(reference, group.size(), 2);
    DistributedDataParallel ddp(net, group);
    {
      const auto guard = ddp.no_sync();
      ddp(whole_batch(group.rank(), 0)).sum().backward();
    }
    torch::nn::Linear alone(5, 3);
    fill_with_whole_numbers(*alone);
    alone(whole_batch(group.rank(), 0)).sum().backward();
    EXPECT_TRUE(torch::equal(net->weight.grad(), alone->weight.grad())) << "the gradient left its rank";
    ddp(whole_batch(group.rank(), 1)).sum().backward();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(net->parameters()[i].grad(), expected[i]));
    }
  });
}

TEST_P(EveryWorld, ParametersAndBuffersComeFromRankZero) {
  run_group(GetParam(), [&](const ProcessGroup& group) {
    Net net;
    const at::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.fill_(group.rank() + 3);
    for (auto& buffer : net->buffers()) buffer.fill_(group.rank() + 5);
    net->first->bias.requires_grad_(false);  // Frozen, and still the same everywhere.
    DistributedDataParallel ddp(net, group);
    for (const auto& parameter : net->parameters()) EXPECT_TRUE((parameter == 3).all().item<bool>());
    for (const auto& buffer : net->buffers()) EXPECT_TRUE((buffer == 5).all().item<bool>());
    EXPECT_EQ(ddp.parameters().size(), net->parameters().size() - 1);
  });
}

TEST_P(EveryWorld, BuffersAreSentBeforeEachSynchronisedForward) {
  run_group(GetParam(), [&](const ProcessGroup& group) {
    Net net;
    DistributedDataParallel ddp(net, group);
    for (int step = 0; step < 2; ++step) ddp(whole_batch(group.rank(), step)).sum().backward();
    ddp->eval();
    const at::NoGradGuard no_grad;
    (void)ddp(
        whole_batch(0));  // Copies rank 0's running statistics, which then stay: the net is in evaluation.
    const auto means = group.all_gather(net->norm->running_mean);
    for (const auto& mean : means) EXPECT_TRUE(torch::equal(mean, means.front()));
  });
}

TEST(DistributedDataParallel, WithoutBroadcastBuffersStayLocal) {
  run_group(2, [&](const ProcessGroup& group) {
    Net net;
    DistributedDataParallel ddp(net, group, {.broadcast_buffers = false});
    for (int step = 0; step < 2; ++step) ddp(whole_batch(group.rank(), step)).sum().backward();
    const auto means = group.all_gather(net->norm->running_mean);
    EXPECT_FALSE(torch::equal(means[0], means[1]));
  });
}

TEST(DistributedDataParallel, UnusedParametersAreFoundWhenAskedFor) {
  run_group(2, [&](const ProcessGroup& group) {
    Fork net;
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      ddp(torch::ones({2, 4}), group.rank() == 0).sum().backward();
      EXPECT_TRUE((net->left->weight.grad() == 1).all().item<bool>());  // 2 on rank 0, nothing on rank 1.
      EXPECT_TRUE((net->right->weight.grad() == 1).all().item<bool>());
      EXPECT_FALSE(net->never->weight.grad().defined());
    }
  });
}

TEST(DistributedDataParallel, UnusedParametersMayChangeFromStepToStep) {
  run_group(2, [&](const ProcessGroup& group) {
    Fork net;
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      ddp.zero_grad();
      const bool left = step % 2 == 0;
      ddp(torch::ones({2, 4}), left).sum().backward();
      EXPECT_EQ(net->left->weight.grad().defined(), left) << "step " << step;
      EXPECT_EQ(net->right->weight.grad().defined(), !left) << "step " << step;
    }
  });
}

TEST(DistributedDataParallel, OutputsThatTheLossIgnoresCountAsUnused) {
  run_group(2, [&](const ProcessGroup& group) {
    TwoOutputs net;
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      const auto [left, rest] = ddp(torch::ones({2, 4}));
      rest.at("right").sum().backward();
      EXPECT_TRUE((net->right->weight.grad() == 2).all().item<bool>());
    }
  });
}

TEST(DistributedDataParallel, OutputTypesOfOnesOwnAreSeen) {
  run_group(2, [&](const ProcessGroup& group) {
    for (const bool search : {false, true}) {
      OwnOutputs net;
      DistributedDataParallel ddp(net, group, {.find_unused_parameters = search, .static_graph = !search});
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        ddp(torch::full({2, 4}, group.rank() + 1.0)).logits.sum().backward();
        EXPECT_TRUE((net->used->weight.grad() == 3).all().item<bool>()) << "step " << step;
      }
    }
  });
}

TEST(DistributedDataParallel, AnUnusedParameterIsNamedInTheNextForward) {
  run_group(2, [&](const ProcessGroup& group) {
    Fork net;
    DistributedDataParallel ddp(net, group);
    ddp(torch::ones({2, 4}), true).sum().backward();
    ddp.zero_grad();
    const auto text = message_of<Error>([&] { ddp(torch::ones({2, 4}), true); });
    EXPECT_NE(text.find("'right.weight', 'right.bias', 'never.weight', 'never.bias'"), std::string::npos)
        << text;
    EXPECT_NE(text.find("find_unused_parameters"), std::string::npos) << text;
  });
}

TEST(DistributedDataParallel, AStaticGraphMayLeaveParametersOut) {
  run_group(2, [&](const ProcessGroup& group) {
    Fork net;
    DistributedDataParallel ddp(net, group, {.static_graph = true});
    for (int step = 0; step < 4; ++step) {
      ddp.zero_grad();
      ddp(torch::full({2, 4}, group.rank() + 1.0), true).sum().backward();
      EXPECT_TRUE((net->left->weight.grad() == 3).all().item<bool>()) << "step " << step;
    }
  });
}

TEST(DistributedDataParallel, TheGraphKeepsWhatItNeedsOfAWrapperThatIsGone) {
  run_group(2, [&](const ProcessGroup& group) {
    Fork net;
    at::Tensor loss;
    {
      DistributedDataParallel ddp(net, group, {.static_graph = true});
      loss = ddp(torch::full({2, 4}, group.rank() + 1.0), true).sum();
    }
    loss.backward();
    EXPECT_TRUE((net->left->weight.grad() == 3).all().item<bool>());
  });
}

TEST(DistributedDataParallel, SmallBucketsGiveTheSameGradients) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::manual_seed(3);
    Net one, many;
    fill_with_whole_numbers(*one);
    fill_with_whole_numbers(*many);
    DistributedDataParallel whole(one, group), pieces(many, group, {.bucket_cap_mb = 1e-6});
    for (int step = 0; step < 3; ++step) {
      whole.zero_grad();
      pieces.zero_grad();
      whole(whole_batch(group.rank(), step)).sum().backward();
      pieces(whole_batch(group.rank(), step)).sum().backward();
      for (std::size_t i = 0; i < one->parameters().size(); ++i) {
        EXPECT_TRUE(torch::equal(one->parameters()[i].grad(), many->parameters()[i].grad()));
      }
    }
  });
}

TEST(DistributedDataParallel, SparseGradientsAreReduced) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(6, 2).sparse(true));
    DistributedDataParallel ddp(net, group, {.sparse_parameters = {"weight"}});
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      ddp(torch::tensor({group.rank(), 5})).sum().backward();
      const at::Tensor gradient = net->weight.grad().to_dense();
      EXPECT_TRUE(torch::equal(gradient.sum(1), torch::tensor({1.0F, 1.0F, 0.0F, 0.0F, 0.0F, 2.0F})));
    }
  });
}

TEST(DistributedDataParallel, TiedWeightsAreTrainedOnce) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear linear(torch::nn::LinearOptions(3, 3).bias(false));
    torch::nn::Sequential net(linear, linear);
    DistributedDataParallel ddp(net, group);
    EXPECT_EQ(ddp.parameters().size(), 1U);
    ddp(torch::ones({1, 3})).sum().backward();
    EXPECT_TRUE(linear->weight.grad().defined());
  });
}

TEST(DistributedDataParallel, DifferentModelsAreNamedWithTheirRanks) {
  run_group(3, [&](const ProcessGroup& group) {
    Net net(group.rank() == 1 ? 8 : 7);
    const auto text = message_of<CommunicationError>([&] { DistributedDataParallel ddp(net, group); });
    EXPECT_NE(text.find("rank " + std::to_string(group.rank()) + ": the ranks hold different models"),
              std::string::npos);
    EXPECT_NE(
        text.find(
            "'first.weight' is parameter Float [7, 5] with gradient on ranks 0, 2; parameter Float [8, 5] "
            "with gradient on rank 1"),
        std::string::npos)
        << text;
    EXPECT_NE(text.find("'norm.running_mean' is buffer Float [7]"), std::string::npos) << text;
  });
}

TEST(DistributedDataParallel, DifferentDtypesAndMissingParametersAreNamed) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(torch::nn::LinearOptions(2, 2).bias(group.rank() == 0));
    if (group.rank() == 1) net->to(torch::kDouble);
    const auto text = message_of<CommunicationError>([&] { DistributedDataParallel ddp(net, group); });
    EXPECT_NE(
        text.find("'weight' is parameter Float [2, 2] with gradient on rank 0; parameter Double [2, 2]"),
        std::string::npos)
        << text;
    EXPECT_NE(
        text.find("'bias' is parameter Float [2] with gradient on rank 0; nothing of that name on rank 1"),
        std::string::npos)
        << text;
  });
}

TEST(DistributedDataParallel, ARankThatCannotTrainIsAnErrorOnEveryRank) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 2);
    for (auto& parameter : net->parameters()) parameter.requires_grad_(group.rank() == 0);
    const auto wrap = [&] { DistributedDataParallel ddp(net, group); };
    const auto text = group.rank() == 1 ? message_of<UsageError>(wrap) : message_of<CommunicationError>(wrap);
    EXPECT_NE(text.find("a module without a parameter that requires a gradient"), std::string::npos) << text;
  });
}

TEST(DistributedDataParallel, DifferentOptionsAreNamed) {
  run_group(2, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 2);
    const auto text = message_of<CommunicationError>(
        [&] { DistributedDataParallel ddp(net, group, {.static_graph = group.rank() == 1}); });
    EXPECT_NE(text.find("rank 1 has bucket_cap_mb 25, broadcast_buffers 1, "
                        "find_unused_parameters 0, static_graph 1"),
              std::string::npos)
        << text;
  });
}

TEST(DistributedDataParallel, WrongUseIsRefused) {
  run_group(1, [&](const ProcessGroup& group) {
    torch::nn::Linear net(2, 2);
    EXPECT_THROW(DistributedDataParallel(net, group, {.bucket_cap_mb = 0}), UsageError);
    EXPECT_THROW(DistributedDataParallel(net, group, {.sparse_parameters = {"absent"}}), UsageError);
    for (auto& parameter : net->parameters()) parameter.requires_grad_(false);
    EXPECT_THROW(DistributedDataParallel(net, group), UsageError);
  });
}

TEST(DistributedDataParallel, TrainingKeepsRanksEqual) {
  run_group(4, [&](const ProcessGroup& group) {
    Net net;
    DistributedDataParallel ddp(net, group, {.gradient_as_bucket_view = true});
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < 5; ++step) {
      ddp.zero_grad();
      torch::mse_loss(ddp(whole_batch(group.rank(), step)), torch::ones({4, 3})).backward();
      optimizer.step();
    }
    for (const auto& parameter : net->parameters()) {
      const auto all = group.all_gather(parameter.detach());
      for (const auto& other : all) EXPECT_TRUE(torch::equal(other, all.front()));
    }
  });
}

}  // namespace
}  // namespace lockstep
