#include "lockstep/parallel/fully_shard.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <map>
#include <mutex>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/grad_scaler.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "lockstep/train/consolidated_optimizer.hpp"
#include "parallel/module_agreement.hpp"
#include "support/peak_bytes.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::run_group;
using Tensors = std::vector<at::Tensor>;

class BlockImpl : public torch::nn::Module, public Unit {
 public:
  BlockImpl()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))),
        in(register_module("in", torch::nn::Linear(6, 11))),
        out(register_module("out", torch::nn::Linear(11, 6))) {}
  at::Tensor forward(const at::Tensor& states) { return through(*this, &BlockImpl::body, states); }
  bool fails = false;
  at::ScalarType computes_in = at::kInt;

 private:
  at::Tensor body(const at::Tensor& states) {
    computes_in = in->weight.scalar_type();
    const at::Tensor hidden = torch::tanh(in(norm(states)));
    if (fails) throw Error("the block fails");
    return states + out(hidden);
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear in, out;
};
TORCH_MODULE(Block);

/// An embedding and a head in the root, and three blocks, of which the second is used twice.
class NetImpl : public torch::nn::Module {
 public:
  NetImpl() {
    first = register_module("first", torch::nn::Linear(5, 6));
    for (int i = 0; i < 3; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    last = register_module("last", torch::nn::Linear(6, 3));
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor states = first(input);
    for (const std::size_t number : order) states = block(number).forward(states);
    return last(states);
  }
  BlockImpl& block(std::size_t number) { return *blocks->at<BlockImpl>(number).as<BlockImpl>(); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::ModuleList blocks;
  std::vector<std::size_t> order{0, 1, 1, 2};
};
TORCH_MODULE(Net);

/// New modules are drawn from the process's generator, which the ranks' threads share.
std::mutex generator_mutex;

template <class Make>
auto seeded(const Make& make) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(3);
  return make();
}

at::Tensor batch_of(int rank, int step) {
  return torch::arange(20, at::kFloat).view({4, 5}).mul(0.37).add(rank * 1.3 + step).sin();
}

Tensors whole_parameters(FullyShardedDataParallelBase& model, torch::nn::Module& module) {
  const auto whole = model.full_parameters();
  Tensors values;
  for (const auto& parameter : module.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

void expect_equal(const Tensors& one, const Tensors& other, const std::string& what) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(torch::equal(one[i], other[i])) << what << ' ' << i;
}

struct Training {
  std::vector<double> losses;
  Tensors parameters;
};

template <class Wrapped, class Loss>
std::vector<double> losses_of(Wrapped& wrapped, const std::vector<at::Tensor>& parameters, const Loss& loss,
                              int accumulation) {
  optim::AdamW optimizer(parameters, {.lr = 0.01});
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    for (int micro = 0; micro < accumulation; ++micro) {
      using Quiet = decltype(wrapped.no_sync());
      std::optional<std::unique_ptr<Quiet>> quiet;
      if (micro + 1 < accumulation) quiet.emplace(new Quiet(wrapped.no_sync()));
      const at::Tensor value = loss(wrapped, step * accumulation + micro);
      losses.push_back(value.template item<double>());
      value.backward();
    }
    optimizer.step();
    wrapped.zero_grad();
  }
  return losses;
}

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

const auto net_loss = [](auto& model, int rank, int step) {
  return model(batch_of(rank, step)).square().mean();
};

class EveryWorld : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, EveryWorld, ::testing::Values(1, 2, 3, 4));

TEST_P(EveryWorld, TrainsWithDistributedDataParallelsBits) {
  for (const bool reshard : {true, false}) {
    expect_ddps_bits(GetParam(), [] { return Net(); }, net_loss, {.reshard_after_forward = reshard});
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

/// What a policy of bf16 and reductions in float32 means, done by hand: copies in bf16 compute, and float32
/// weights are optimized with the mean of float32 sums.
template <class Make>
Training in_bfloat16_by_hand(const Make& make, const ProcessGroup& group, int accumulation) {
  auto weights = seeded(make), copy = seeded(make);
  copy->to(at::kBFloat16);
  optim::AdamW optimizer(weights->parameters(), {.lr = 0.01});
  Training result;
  for (int step = 0; step < 4; ++step) {
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
      // The gradients of several uses are rounded to bfloat16 before they are added to what is kept, or
      // after.
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

models::Gpt2Config gpt2_config(std::int64_t layers, std::int64_t width) {
  return {.vocab_size = 37,
          .n_positions = 16,
          .n_embd = width,
          .n_layer = layers,
          .n_head = 2,
          .resid_pdrop = 0,
          .embd_pdrop = 0,
          .attn_pdrop = 0};
}

/// Ranks that are threads draw from one generator: values that do not depend on it.
template <class Model>
void set_values(Model& model) {
  int number = 1;
  for (const auto& entry : parallel::without_repeats(parallel::named_parameters_of(model))) {
    parallel::set_initial_values(entry.tensor, [&](const at::Tensor& whole) {
      whole.copy_(at::arange(whole.numel()).mul(number).sin().mul(0.1).view(whole.sizes()));
    });
    ++number;
  }
}

TEST(ShardedInit, AModelThatWasDividedWhileItWasMadeTrainsAsAnother) {
  const auto compare = [](int ranks, const auto& make, const auto& loss) {
    run_group(ranks, [&](const ProcessGroup& group) {
      auto one = make();
      set_values(one);
      std::optional<ShardedInit> init(std::in_place, group);
      auto other = make();
      set_values(other);
      init.reset();
      std::int64_t elements = 0, mine = 0;
      for (const auto& parameter : one->parameters()) elements += parameter.numel();
      for (const auto& parameter : other->parameters()) mine += parameter.numel();
      EXPECT_LT(mine, elements);
      // Some are frozen after their units were made, so that units have segments of both kinds.
      for (auto* const model : {&one, &other})
        for (auto& entry : (*model)->named_parameters())
          if (entry.key().ends_with("bias")) entry.value().requires_grad_(false);
      auto whole = fully_shard(one, group);
      auto divided = fully_shard(other, group);
      const auto train = [&](auto& wrapped, const auto& module) {
        return losses_of(
            wrapped, module->parameters(),
            [&](auto& model, int step) { return loss(model, group.rank(), step); }, 1);
      };
      EXPECT_EQ(train(whole, one), train(divided, other));
      expect_equal(whole_parameters(whole, *one), whole_parameters(divided, *other), "parameter");
    });
  };
  compare(
      3, [] { return models::Gpt2LMHeadModel(gpt2_config(2, 12)); },
      [](auto& model, int rank, int step) {
        const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(37).view({2, 8});
        return models::causal_lm_loss(model(ids), ids);
      });
  compare(
      2,
      [] {
        return models::BartForConditionalGeneration(models::BartConfig{.vocab_size = 29,
                                                                       .max_position_embeddings = 16,
                                                                       .d_model = 12,
                                                                       .encoder_layers = 2,
                                                                       .encoder_attention_heads = 2,
                                                                       .encoder_ffn_dim = 20,
                                                                       .decoder_layers = 1,
                                                                       .decoder_attention_heads = 2,
                                                                       .decoder_ffn_dim = 20,
                                                                       .dropout = 0});
      },
      [](auto& model, int rank, int step) {
        const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(29).view({2, 8});
        return model(ids, at::Tensor(), ids.flip(1)).square().mean();
      });
}

TEST(ShardedInit, OneUnitIsWholeAtATime) {
  run_group(3, [&](const ProcessGroup& group) {
    const auto bytes_of = [](const auto& model) {
      std::int64_t bytes = 0;
      for (const auto& parameter : model->parameters())
        bytes += static_cast<std::int64_t>(parameter.nbytes());
      return bytes;
    };
    const std::int64_t whole = bytes_of(models::Gpt2LMHeadModel(gpt2_config(18, 32)));
    const auto peak = testing::PeakBytes::of([&] {
      std::optional<ShardedInit> init(std::in_place, group);
      models::Gpt2LMHeadModel model(gpt2_config(18, 32));
      init.reset();
      const auto wrapped = fully_shard(model, group);
      EXPECT_LT(bytes_of(model), whole * 2 / 5);
    });
    EXPECT_LT(peak, whole * 7 / 10);
  });
}

TEST(ShardedInit, LoadsAModelThatWasSaved) {
  const testing::TemporaryFolder folder;
  models::Gpt2LMHeadModel saved(gpt2_config(2, 12));
  set_values(saved);
  models::save_pretrained(saved, folder.path());
  run_group(2, [&](const ProcessGroup& group) {
    std::optional<ShardedInit> init(std::in_place, group);
    models::Gpt2LMHeadModel model = models::load_gpt2(folder.path());
    init.reset();
    auto wrapped = fully_shard(model, group);
    expect_equal(whole_parameters(wrapped, *model), saved->parameters(), "parameter");
  });
}

TEST(ShardedInit, WhatIsDividedNeedsFullyShard) {
  run_group(2, [&](const ProcessGroup& group) {
    std::optional<ShardedInit> init(std::in_place, group);
    models::Gpt2LMHeadModel model(gpt2_config(1, 12));
    init.reset();
    EXPECT_THROWS(model->forward(at::zeros({1, 3}, at::kLong)), UsageError, "made under a ShardedInit");
    EXPECT_THROWS(DistributedDataParallel(model, group), UsageError, "is fully sharded");
    // The next one is none of its business.
    models::Gpt2LMHeadModel other(gpt2_config(1, 12));
    EXPECT_EQ(other->forward(at::zeros({1, 3}, at::kLong)).size(2), 37);
    init.emplace(group);
    EXPECT_THROWS(models::Gpt2LMHeadModel(gpt2_config(1, 12 + 2 * group.rank())), CommunicationError,
                  "weight");
  });
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

/// torch::autograd::grad accumulates into no parameter: of an input it is what the whole model would give,
/// and of a parameter this rank's whole gradient.
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

TEST(FullyShard, GoesOnAfterAForwardThatThrew) {
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

TEST(FullyShard, GoesOnAfterABackwardThatThrew) {
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

TEST(FullyShard, WhatIsWrittenToWholeParametersStays) {
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

TEST(FullyShard, TheOptimizersStateIsThatOfAWholeModelAndGoesOnAnywhere) {
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

    // A new sharded model goes on from the state and the weights of the whole one.
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

/// What is loaded between a forward and its backward would be mixed with what was there.
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
    // Both send as much, but not of the same units; what the transport cannot see.
    net->order = group.rank() == 1 ? std::vector<std::size_t>{1, 0, 2} : std::vector<std::size_t>{0, 1, 2};
    EXPECT_THROWS(net_loss(model, group.rank(), 0).backward(), CommunicationError, "in the same order");
    net->order = {0, 1, 2};
    net_loss(model, group.rank(), 0).backward();
    net->to(at::kDouble);
    EXPECT_THROWS(model(batch_of(0, 0)), UsageError, "'first.weight' has other data", "before sharding");
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

}  // namespace
}  // namespace lockstep
