#include "lockstep/parallel/sharded_init.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "parallel/module_agreement.hpp"
#include "sharded_net.hpp"
#include "support/peak_bytes.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Ranks are threads that share one generator: sets values that do not depend on it.
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
      // Some are frozen after their units were created, so that units have segments of both kinds.
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
  for (const char* type : {"llama", "gemma2", "phi3"}) {
    compare(
        2, [&] { return models::DecoderForCausalLM(decoder_config(type)); },
        [](auto& model, int rank, int step) {
          const at::Tensor ids = torch::arange(16).mul(rank + 3).add(step).remainder(37).view({2, 8});
          return models::causal_lm_loss(model(ids), ids);
        });
  }
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
    // A later model is not affected.
    models::Gpt2LMHeadModel other(gpt2_config(1, 12));
    EXPECT_EQ(other->forward(at::zeros({1, 3}, at::kLong)).size(2), 37);
    init.emplace(group);
    EXPECT_THROWS(models::Gpt2LMHeadModel(gpt2_config(1, 12 + 2 * group.rank())), CommunicationError,
                  "weight");
  });
}

}  // namespace
}  // namespace lockstep
