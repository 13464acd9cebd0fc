#include "lockstep/parallel/fully_shard.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/pimpl.h>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/parallel/unit.hpp"
#include "sharded_net.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Trains the same module wrapped by both, and expects the same bits.
template <class Make, class Loss>
void expect_ddps_bits(int ranks, const Make& make, const Loss& loss, const FullyShardOptions& options = {},
                      int accumulation = 1, bool unused = false) {
  run_group(ranks, [&](const ProcessGroup& group) {
    auto one = seeded(make), other = seeded(make);
    DistributedDataParallel ddp(one, group, {.find_unused_parameters = unused});
    const auto expected = losses_of(
        ddp, one->parameters(), [&](auto& model, int step) { return loss(model, group.rank(), step); },
        accumulation);
    auto sharded = fully_shard(other, group, options);
    const auto losses = losses_of(
        sharded, other->parameters(), [&](auto& model, int step) { return loss(model, group.rank(), step); },
        accumulation);
    EXPECT_EQ(losses, expected);
    Tensors parameters;
    for (const auto& parameter : one->parameters()) parameters.push_back(parameter.detach());
    expect_equal(whole_parameters(sharded, *other), parameters, "parameter");
  });
}

class EveryWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, EveryWorld, ::testing::Values(1, 2, 3, 4));

TEST_P(EveryWorld, TrainsWithDistributedDataParallelsBits) {
  for (const bool reshard : {true, false}) {
    expect_ddps_bits(GetParam(), [] { return Net(); }, net_loss, {.reshard_after_forward = reshard});
  }
}

TEST_P(EveryWorld, BlocksInAnotherOrderThanBefore) {
  const auto loss = [](auto& model, int rank, int step) {
    return model(batch_of(rank, step), step).square().mean();
  };
  for (const bool reshard : {true, false}) {
    expect_ddps_bits(
        GetParam(), [] { return WanderingNet(); }, loss, {.reshard_after_forward = reshard}, 1,
        /*unused=*/true);
  }
}

TEST_P(EveryWorld, AccumulatesWithoutSending) {
  expect_ddps_bits(
      GetParam(), [] { return Net(); }, net_loss, {}, 2);
}

TEST_P(EveryWorld, TiedWeightsAndAVocabularyThatDoesNotDivide) {
  const auto make = [] {
    return models::Gpt2LMHeadModel(models::Gpt2Config{.vocab_size = 37,
                                                      .n_positions = 16,
                                                      .n_embd = 12,
                                                      .n_layer = 2,
                                                      .n_head = 2,
                                                      .resid_pdrop = 0,
                                                      .embd_pdrop = 0,
                                                      .attn_pdrop = 0});
  };
  const auto loss = [](auto& model, int rank, int step) {
    const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(37).view({2, 8});
    return models::causal_lm_loss(model(ids), ids);
  };
  expect_ddps_bits(GetParam(), make, loss);
  expect_ddps_bits(GetParam(), make, loss, {.backward_prefetch = false}, 2);
}

/// Tied and untied heads, fused projections, norms of queries, windows, caps.
TEST_P(EveryWorld, DecodersOfAllKinds) {
  for (const char* type : {"llama", "qwen3", "gemma2", "phi3", "olmo2"}) {
    const auto loss = [](auto& model, int rank, int step) {
      const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(37).view({2, 8});
      return models::causal_lm_loss(model(ids), ids);
    };
    const auto make = [&] { return models::DecoderForCausalLM(decoder_config(type)); };
    expect_ddps_bits(GetParam(), make, loss);
    // The loss inside the model, of parts of its logits.
    const auto make_with_loss = [&] {
      return models::TokenLossModel(
          models::CausalLM(std::static_pointer_cast<models::CausalLMImpl>(make().ptr())));
    };
    const auto loss_of_parts = [](auto& model, int rank, int step) {
      const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(37).view({2, 8});
      const models::TokenLosses losses = model(
          models::LabelledTexts{.input_ids = ids, .labels = ids, .options = {.logits_at_a_time = 37 * 3}});
      return losses.loss_sum / losses.loss_weight;
    };
    expect_ddps_bits(GetParam(), make_with_loss, loss_of_parts);
    expect_ddps_bits(GetParam(), make_with_loss, loss_of_parts, {.reshard_after_forward = false}, 2);
  }
}

struct Training {
  std::vector<double> losses;
  Tensors parameters;
};

/// A policy of bf16 with float32 reductions, done by hand: bf16 copies compute, and float32 weights are
/// optimized with the mean of float32 sums.
template <class Make>
Training in_bfloat16_by_hand(const Make& make, const ProcessGroup& group, int accumulation) {
  auto weights = seeded(make), copy = seeded(make);
  copy->to(at::kBFloat16);
  optim::AdamW optimizer(weights->parameters(), {.lr = 0.01});
  Training result;
  for (int step = 0; step < 10; ++step) {
    for (std::size_t i = 0; i < weights->parameters().size(); ++i) {
      const at::NoGradGuard no_grad;
      copy->parameters()[i].copy_(weights->parameters()[i]);
      weights->parameters()[i].mutable_grad().reset();
    }
    for (int micro = 0; micro < accumulation; ++micro) {
      const auto input = batch_of(group.rank(), step * accumulation + micro).to(at::kBFloat16);
      const at::Tensor loss = copy->forward(input).to(at::kFloat).square().mean();
      result.losses.push_back(loss.item<double>());
      loss.backward();
      for (std::size_t i = 0; i < weights->parameters().size(); ++i) {
        at::Tensor& sum = weights->parameters()[i].mutable_grad();
        at::Tensor& gradient = copy->parameters()[i].mutable_grad();
        sum = sum.defined() ? sum + gradient : gradient.to(at::kFloat);
        gradient.reset();
      }
    }
    for (const auto& parameter : weights->parameters()) {
      parameter.mutable_grad().mul_(1.0 / group.size());
      group.all_reduce(parameter.grad());
    }
    optimizer.step();
  }
  for (const auto& parameter : weights->parameters()) result.parameters.push_back(parameter.detach());
  return result;
}

TEST_P(EveryWorld, ComputesInBfloat16AndReducesInFloat32) {
  for (const int accumulation : {1, 2}) {
    const auto make = [&] {
      Net net;
      // The gradients of several uses are rounded to bfloat16 before or after they are added to the
      // accumulated one.
      if (accumulation > 1) net->order = {0, 1, 2};
      return net;
    };
    run_group(GetParam(), [&](const ProcessGroup& group) {
      auto net = seeded(make);
      auto model = fully_shard(
          net, group,
          {.mp_policy = {
               .param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat, .output_dtype = at::kFloat}});
      const Training expected = in_bfloat16_by_hand(make, group, accumulation);
      const auto losses = losses_of(
          model, net->parameters(), [&](auto& m, int step) { return net_loss(m, group.rank(), step); },
          accumulation);
      EXPECT_EQ(net->block(1).computes_in, at::kBFloat16);
      EXPECT_EQ(losses, expected.losses);
      expect_equal(whole_parameters(model, *net), expected.parameters, "parameter");
    });
  }
}

TEST(FullyShard, AllDtypesOfAPolicyMayBeHalfWide) {
  run_group(2, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    auto whole = fully_shard(one, group);
    auto half = fully_shard(other, group,
                            {.reshard_after_forward = false, .mp_policy = {.param_dtype = at::kBFloat16}});
    const auto train = [&](auto& model, Net& net) {
      return losses_of(
          model, net->parameters(), [&](auto& m, int step) { return net_loss(m, group.rank(), step); }, 1);
    };
    const auto expected = train(whole, one), losses = train(half, other);
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 0.02) << i;
    EXPECT_EQ(half(batch_of(0, 0)).scalar_type(), at::kBFloat16);
    for (const auto& parameter : other->parameters()) {
      EXPECT_EQ(parameter.scalar_type(), at::kFloat);
      EXPECT_EQ(parameter.grad().defined(), false);
    }
    const auto originals = half.full_parameters();
    const at::NoGradGuard no_grad;
    EXPECT_EQ(half(batch_of(0, 0)).scalar_type(), at::kFloat);
  });
}

TEST(FullyShard, TrainsOverGlooAsDistributedDataParallelDoes) {
  const Store store = Store::in_memory();
  for (const int ranks : {2, 3}) {
    const Store part = store.with_prefix(std::to_string(ranks));
    testing::run_ranks(ranks, [&](int rank) {
      const ProcessGroup group(rank, ranks, part,
                               {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(60)});
      auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
      DistributedDataParallel ddp(one, group);
      auto model = fully_shard(other, group);
      const auto train = [&](auto& wrapped, Net& net) {
        return losses_of(
            wrapped, net->parameters(), [&](auto& m, int step) { return net_loss(m, rank, step); }, 1);
      };
      const auto expected = train(ddp, one), losses = train(model, other);
      for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << i;
    });
  }
}

TEST(FullyShard, KeepsItsPartAloneBetweenSteps) {
  run_group(3, [&](const ProcessGroup& group) {
    auto net = seeded([] { return Net(); });
    std::int64_t elements = 0, mine = 0;
    for (const auto& parameter : net->parameters()) elements += parameter.numel();
    auto model = fully_shard(net, group);
    const auto count = [&] {
      mine = 0;
      for (const auto& parameter : net->parameters()) {
        EXPECT_EQ(parameter.dim(), 1);
        mine += parameter.numel();
        if (!parameter.grad().defined()) continue;
        EXPECT_EQ(parameter.grad().sizes(), parameter.sizes());
      }
      const at::Tensor sum = torch::tensor({mine});
      group.all_reduce(sum);
      EXPECT_EQ(sum.item<std::int64_t>(), elements);
      EXPECT_LT(mine, elements / 2);
    };
    count();
    const at::Tensor loss = net_loss(model, group.rank(), 0);
    count();
    loss.backward();
    count();
    for (const auto& entry : net->named_parameters())
      EXPECT_TRUE(entry.value().grad().defined()) << entry.key();
  });
}

TEST(FullyShard, FrozenAndUnusedParametersGetNoGradient) {
  const auto make = [] {
    Net net;
    for (auto& parameter : net->block(0).parameters()) parameter.requires_grad_(false);
    net->first->bias.requires_grad_(false);
    net->register_parameter("unused", torch::ones({7}));
    return net;
  };
  expect_ddps_bits(3, make, net_loss, {}, 1, true);
}

/// LibTorch's own layers, which do not know about units.
class EncoderImpl : public torch::nn::Module {
 public:
  using Layer = UnitOf<torch::nn::TransformerEncoderLayerImpl>;
  EncoderImpl() {
    const auto options = torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(11).dropout(0.0);
    for (const char* name : {"one", "two"})
      layers.push_back(register_module(name, std::make_shared<Layer>(options)));
    last = register_module("last", torch::nn::Linear(6, 1));
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor states = input;
    for (auto& layer : layers) states = layer->forward(states);
    return last(states);
  }
  std::vector<std::shared_ptr<Layer>> layers;
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(Encoder);

TEST(FullyShard, BlocksOfOtherClassesAreUnitsToo) {
  const auto loss = [](auto& model, int rank, int step) {
    return model(at::arange(36).mul(0.3).add(rank + step).sin().view({2, 3, 6})).square().mean();
  };
  expect_ddps_bits(
      3, [] { return Encoder(); }, loss);
  expect_ddps_bits(
      2,
      [] {
        Encoder encoder;
        set_activation_checkpointing(encoder);
        return encoder;
      },
      loss);
  EXPECT_TRUE(Encoder()->named_parameters().contains("one.self_attn.in_proj_weight"));
}

TEST(FullyShard, BertWithoutItsPooler) {
  const auto make = [] {
    return models::BertModel(models::BertConfig{.vocab_size = 31,
                                                .hidden_size = 12,
                                                .num_hidden_layers = 2,
                                                .num_attention_heads = 2,
                                                .intermediate_size = 20,
                                                .hidden_dropout_prob = 0,
                                                .attention_probs_dropout_prob = 0,
                                                .max_position_embeddings = 16});
  };
  const auto loss = [](auto& model, int rank, int step) {
    const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(31).view({2, 8});
    return model(ids, torch::ones_like(ids)).last_hidden_state.square().mean();
  };
  expect_ddps_bits(2, make, loss, {}, 1, true);
}

TEST(FullyShard, BartWhoseDecoderLayersAreEnteredTwice) {
  const auto make = [] {
    return models::BartForConditionalGeneration(models::BartConfig{.vocab_size = 29,
                                                                   .max_position_embeddings = 16,
                                                                   .d_model = 12,
                                                                   .encoder_layers = 2,
                                                                   .encoder_attention_heads = 2,
                                                                   .encoder_ffn_dim = 20,
                                                                   .decoder_layers = 2,
                                                                   .decoder_attention_heads = 2,
                                                                   .decoder_ffn_dim = 20,
                                                                   .dropout = 0});
  };
  const auto loss = [](auto& model, int rank, int step) {
    const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(29).view({2, 8});
    return model(ids, at::Tensor(), ids.flip(1)).square().mean();
  };
  expect_ddps_bits(3, make, loss);
  expect_ddps_bits(2, make, loss, {.reshard_after_forward = false}, 2);
}

TEST(FullyShard, AnEvaluationOrALostBackwardBetweenStepsChangesNothing) {
  const auto loss = [](auto& model, int rank, int step) {
    {
      const at::NoGradGuard no_grad;
      model(batch_of(rank, 7));
    }
    model(batch_of(rank, 8));
    return net_loss(model, rank, step);
  };
  run_group(2, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    auto plain = fully_shard(one, group), disturbed = fully_shard(other, group);
    const auto train = [&](auto& model, Net& net, const auto& step_loss) {
      return losses_of(
          model, net->parameters(),
          [&](auto& wrapped, int step) { return step_loss(wrapped, group.rank(), step); }, 1);
    };
    EXPECT_EQ(train(plain, one, net_loss), train(disturbed, other, loss));
  });
}

/// torch::autograd::grad accumulates into no parameter: the gradient of an input is that of the unsharded
/// model, and the gradient of a parameter is this rank's, unsharded.
TEST(FullyShard, GradientsThatAreAskedForAreThisRanksOwn) {
  run_group(3, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    auto model = fully_shard(other, group);
    for (const bool reshard : {true, false}) {
      const at::Tensor input = batch_of(group.rank(), 0).requires_grad_();
      const auto asked = [&](auto& net, const at::Tensor& weight) {
        const at::Tensor loss = (reshard ? net(input).square() : net(input)).mean();
        return torch::autograd::grad({loss}, {input, weight});
      };
      const auto forward = [&](const at::Tensor& values) { return one->forward(values); };
      expect_equal(asked(model, other->last->weight), asked(forward, one->last->weight), "gradient");
      for (const auto& parameter : other->parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
    auto plain = fully_shard(one, group);
    const auto train = [&](auto& wrapped, Net& net) {
      return losses_of(
          wrapped, net->parameters(), [&](auto& m, int step) { return net_loss(m, group.rank(), step); }, 1);
    };
    EXPECT_EQ(train(model, other), train(plain, one));
  });
}

TEST(FullyShard, TrainsAfterAForwardThatThrew) {
  run_group(2, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    auto plain = fully_shard(one, group), model = fully_shard(other, group);
    other->block(1).fails = true;
    EXPECT_THROWS(net_loss(model, group.rank(), 0), Error, "the block fails");
    for (const auto& parameter : other->parameters()) EXPECT_EQ(parameter.dim(), 1);
    other->block(1).fails = false;
    net_loss(plain, group.rank(), 1).backward();
    net_loss(model, group.rank(), 1).backward();
    for (std::size_t i = 0; i < one->parameters().size(); ++i)
      EXPECT_TRUE(torch::equal(one->parameters()[i].grad(), other->parameters()[i].grad()));
  });
}

TEST(FullyShard, TrainsAfterABackwardThatThrew) {
  run_group(2, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    auto plain = fully_shard(one, group), model = fully_shard(other, group);
    auto input = batch_of(group.rank(), 0).requires_grad_();
    input.register_hook([](const at::Tensor&) -> at::Tensor { throw Error("the hook fails"); });
    EXPECT_ANY_THROW(model(input).square().mean().backward());
    net_loss(plain, group.rank(), 1).backward();
    net_loss(model, group.rank(), 1).backward();
    for (std::size_t i = 0; i < one->parameters().size(); ++i)
      EXPECT_TRUE(torch::equal(one->parameters()[i].grad(), other->parameters()[i].grad()));
  });
}

TEST(FullyShard, CheckpointedUnitsHaveTheSameBits) {
  run_group(2, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    auto plain = fully_shard(one, group), model = fully_shard(other, group);
    set_activation_checkpointing(model.module());
    for (int step = 0; step < 2; ++step) {
      net_loss(plain, group.rank(), step).backward();
      net_loss(model, group.rank(), step).backward();
    }
    for (std::size_t i = 0; i < one->parameters().size(); ++i)
      EXPECT_TRUE(torch::equal(one->parameters()[i].grad(), other->parameters()[i].grad()));
  });
}

TEST(FullyShard, ABackwardMayRunTwice) {
  run_group(2, [&](const ProcessGroup& group) {
    auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
    auto plain = fully_shard(one, group), model = fully_shard(other, group);
    const at::Tensor loss = net_loss(model, group.rank(), 0);
    loss.backward({}, true);
    loss.backward();
    net_loss(plain, group.rank(), 0).backward();
    for (std::size_t i = 0; i < one->parameters().size(); ++i) {
      EXPECT_TRUE(torch::allclose(one->parameters()[i].grad() * 2, other->parameters()[i].grad())) << i;
    }
  });
}

/// Also of forwards between which another backward has run.
TEST(FullyShard, ABackwardMayBeOfSeveralForwards) {
  for (const bool reshard : {true, false}) {
    run_group(2, [&](const ProcessGroup& group) {
      auto one = seeded([] { return Net(); }), other = seeded([] { return Net(); });
      auto plain = fully_shard(one, group);
      auto model = fully_shard(other, group, {.reshard_after_forward = reshard});
      std::vector<at::Tensor> losses;
      const auto forward = [&] {
        losses.push_back(net_loss(model, group.rank(), static_cast<int>(losses.size())));
      };
      forward();
      forward();
      (losses[0] + losses[1]).backward();
      forward();
      forward();
      losses[3].backward();
      forward();
      (losses[2] + losses[4]).backward();
      for (int step = 0; step < 5; ++step) net_loss(plain, group.rank(), step).backward();
      for (std::size_t i = 0; i < one->parameters().size(); ++i)
        EXPECT_TRUE(torch::allclose(one->parameters()[i].grad(), other->parameters()[i].grad())) << i;
    });
  }
}

TEST(FullyShard, UnitsOfOtherClassesAreTheRoots) {
  const auto make = [] { return Net(); };
  expect_ddps_bits(3, make, net_loss, {.transformer_cls_names_to_wrap = {"block"}});
  run_group(2, [&](const ProcessGroup& group) {
    models::Gpt2LMHeadModel gpt2(gpt2_config(1, 12));
    EXPECT_THROWS(fully_shard(gpt2, group, {.transformer_cls_names_to_wrap = {"BertLayer"}}), UsageError,
                  "'BertLayer'", "units are of Gpt2Block");
    std::optional<ShardedInit> init(std::in_place, group);
    models::BartForConditionalGeneration bart(models::BartConfig{.vocab_size = 29,
                                                                 .max_position_embeddings = 16,
                                                                 .d_model = 12,
                                                                 .encoder_layers = 1,
                                                                 .encoder_attention_heads = 2,
                                                                 .encoder_ffn_dim = 20,
                                                                 .decoder_layers = 1,
                                                                 .decoder_attention_heads = 2,
                                                                 .decoder_ffn_dim = 20});
    init.reset();
    auto model = fully_shard(bart, group, {.transformer_cls_names_to_wrap = {"BartEncoderLayer"}});
    model(torch::ones({1, 4}, at::kLong), at::Tensor(), torch::ones({1, 4}, at::kLong)).mean().backward();
  });
}

}  // namespace
}  // namespace lockstep
