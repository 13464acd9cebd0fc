// What works on tensors of any device gives on a GPU what it gives on the CPU: hooks, collectives, averages,
// generated texts, images, metrics.

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "fsdp_job.hpp"
#include "lockstep/data/image_transforms.hpp"
#include "lockstep/models/bart.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/step_in_backward.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/parallel/local_sgd.hpp"
#include "lockstep/parallel/power_sgd.hpp"
#include "lockstep/train/metrics.hpp"
#include "on_device.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

using Layers = torch::nn::Sequential;
using MakeHook = std::function<std::shared_ptr<CommHook>()>;

Layers layers_on(const at::Device& device) {
  Layers net(torch::nn::Linear(8, 24), torch::nn::Tanh(), torch::nn::Linear(24, 3));
  const at::NoGradGuard no_grad;
  for (auto& parameter : net->parameters())
    parameter.copy_(at::arange(parameter.numel()).remainder(13).sub(6).mul(0.03).view_as(parameter));
  net->to(device);
  return net;
}

/// Other rows for each rank and step.
at::Tensor rows_of(int rank, int step, const at::Device& device) {
  return at::arange(48).add(rank * 5 + step * 11).mul(0.37).sin().view({6, 8}).to(device);
}

std::vector<at::Tensor> on_cpu(const Layers& net) {
  std::vector<at::Tensor> weights;
  for (const auto& parameter : net->parameters()) weights.push_back(parameter.detach().cpu().clone());
  return weights;
}

/// The weights after some steps on `device`; `around` sees the model and returns what follows each backward.
template <class Around>
std::vector<at::Tensor> trained(const ProcessGroup& group, const at::Device& device, const Around& around,
                                const DistributedDataParallelOptions& options = {}) {
  Layers net = layers_on(device);
  DistributedDataParallel ddp(net, group, options);
  optim::AdamW optimizer(net->parameters(), {.lr = 0.01});
  auto after_backward = around(ddp, optimizer);
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    ddp(rows_of(group.rank(), step, device)).square().mean().backward();
    after_backward();
  }
  return on_cpu(net);
}

class TrainedRanksOnDevice : public RanksOnDevice {
 protected:
  /// Both ranks get on the device what threads get on the CPU.
  template <class Around>
  void expect_trained_as_on_cpu(const Around& around, double tolerance = 1e-5,
                                const DistributedDataParallelOptions& options = {}) const {
    std::vector<std::vector<at::Tensor>> expected(2);
    run_group(2, [&](const ProcessGroup& group) {
      expected[static_cast<std::size_t>(group.rank())] = trained(group, at::kCPU, around, options);
    });
    run(2, [&](Accelerator& accelerator) {
      expect_close(trained(accelerator.process_group(), device(), around, options),
                   expected[static_cast<std::size_t>(accelerator.process_index())], tolerance);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, TrainedRanksOnDevice, ::testing::Values("cpu", "cuda:0"));

TEST_P(TrainedRanksOnDevice, CommHooksReduceAsOnTheCpu) {
  const std::vector<MakeHook> hooks{
      [] { return std::make_shared<AllReduceHook>(); },
      [] { return std::make_shared<CompressHook>(at::kHalf); },
      [] { return std::make_shared<CompressHook>(at::kBFloat16); },
      [] { return std::make_shared<CompressWrapper>(at::kHalf, std::make_shared<AllReduceHook>()); },
      [] { return std::make_shared<QuantizationHook>(QuantizationOptions{.channel = 16}); },
      [] { return std::make_shared<PowerSgdHook>(PowerSgdOptions{.start_iteration = 2}); },
      [] { return std::make_shared<BatchedPowerSgdHook>(PowerSgdOptions{.start_iteration = 2}); },
      [] { return std::make_shared<PostLocalSgdHook>(PostLocalSgdOptions{.start_iteration = 3}); },
  };
  for (const auto& make : hooks) {
    SCOPED_TRACE(make()->name());
    expect_trained_as_on_cpu(
        [&](auto& ddp, auto& optimizer) {
          ddp.register_comm_hook(make());
          return [&optimizer] { optimizer.step(); };
        },
        /*tolerance=*/2e-3);
  }
}

TEST_P(TrainedRanksOnDevice, SettingsOfTheReducerTrainAsOnTheCpu) {
  for (const auto& options :
       {DistributedDataParallelOptions{.bucket_cap_mb = 1e-4},
        DistributedDataParallelOptions{.static_graph = true},
        DistributedDataParallelOptions{.gradient_as_bucket_view = true},
        DistributedDataParallelOptions{.non_finite_gradients = NonFiniteGradients::skip},
        DistributedDataParallelOptions{.find_unused_parameters = true}}) {
    expect_trained_as_on_cpu([](auto&, auto& optimizer) { return [&optimizer] { optimizer.step(); }; }, 1e-5,
                             options);
  }
}

TEST_P(TrainedRanksOnDevice, LocalSgdAveragesAsOnTheCpu) {
  expect_trained_as_on_cpu([](auto& ddp, auto& optimizer) {
    return [&optimizer, local = std::make_shared<LocalSgd>(ddp, 2)] {
      optimizer.step();
      local->step();
    };
  });
}

TEST_P(TrainedRanksOnDevice, OptimizersStepInBackwardAsAfterIt) {
  run(2, [&](Accelerator& accelerator) {
    const auto train = [&](bool in_backward) {
      return trained(accelerator.process_group(), device(), [&](auto& ddp, auto& optimizer) {
        if (in_backward) optim::step_in_backward(ddp, optimizer);
        return [&optimizer, in_backward] {
          if (!in_backward) optimizer.step();
        };
      });
    };
    expect_close(train(true), train(false), 0);
  });
}

TEST_P(TrainedRanksOnDevice, NonFiniteGradientsAreFound) {
  for (const auto action : {NonFiniteGradients::skip, NonFiniteGradients::error}) {
    run(2, [&](Accelerator& accelerator) {
      Layers net = layers_on(device());
      DistributedDataParallel ddp(net, accelerator.process_group(), {.non_finite_gradients = action});
      const int last = accelerator.num_processes() - 1;
      at::Tensor rows = rows_of(0, 0, device());
      if (accelerator.process_index() == last) rows = rows / 0;
      const auto backward = [&] { ddp(rows).sum().backward(); };
      if (action == NonFiniteGradients::error) {
        EXPECT_THROWS(backward(), Error, "on rank " + std::to_string(last));
        return;
      }
      backward();
      for (const auto& parameter : net->parameters())
        EXPECT_TRUE(!parameter.grad().defined() || !parameter.grad().any().template item<bool>());
    });
  }
}

TEST_P(TrainedRanksOnDevice, CollectivesAreThoseOfTheCpu) {
  run(2, [&](Accelerator& accelerator) {
    const int rank = accelerator.process_index(), ranks = accelerator.num_processes();
    for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kByte, at::kBool}) {
      SCOPED_TRACE(c10::toString(type));
      const at::Tensor own = at::arange(6).add(rank).remainder(5).to(type).view({3, 2});
      const at::Tensor there = own.to(device());
      const auto expect_same = [&](const auto& function) {
        const at::Tensor result = function(there);
        EXPECT_EQ(result.device(), device());
        EXPECT_TRUE(at::equal(result.cpu(), function(own)));
      };
      expect_same([&](const at::Tensor& tensor) { return accelerator.gather(tensor); });
      expect_same([&](const at::Tensor& tensor) { return accelerator.broadcast(tensor, ranks - 1); });
      expect_same([&](const at::Tensor& tensor) { return accelerator.reduce(tensor, ReduceOp::max); });
      expect_same([&](const at::Tensor& tensor) {
        return accelerator.pad_across_processes(tensor.narrow(0, 0, rank + 1), 0, 1);
      });
      expect_same([&](const at::Tensor& tensor) {
        return accelerator.process_group().all_gather(tensor.select(0, rank)).front().clone();
      });
    }
    for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
      const at::Tensor mean = accelerator.reduce(
          at::full({4}, rank + 1.0, at::TensorOptions(device()).dtype(type)), ReduceOp::avg);
      EXPECT_TRUE((mean == (ranks + 1) / 2.0).all().item<bool>());
    }
  });
}

TEST_P(OnDevice, TextsAreGeneratedAsOnTheCpu) {
  torch::manual_seed(4);
  models::Gpt2LMHeadModel gpt2(models::Gpt2Config{
      .vocab_size = 31, .n_positions = 32, .n_embd = 24, .n_layer = 2, .n_head = 2, .eos_token_id = 3});
  models::BartForConditionalGeneration bart(models::BartConfig{.vocab_size = 31,
                                                               .max_position_embeddings = 32,
                                                               .d_model = 24,
                                                               .encoder_layers = 1,
                                                               .encoder_attention_heads = 2,
                                                               .encoder_ffn_dim = 32,
                                                               .decoder_layers = 1,
                                                               .decoder_attention_heads = 2,
                                                               .decoder_ffn_dim = 32});
  const at::NoGradGuard no_grad;
  // Far apart, so that no two tokens are equally likely.
  for (auto& parameter : gpt2->parameters()) parameter.mul_(12);
  for (auto& parameter : bart->parameters()) parameter.mul_(12);
  gpt2->eval();
  bart->eval();
  const at::Tensor prompts = at::arange(12).mul(7).remainder(31).view({4, 3});
  const std::vector<models::GenerationConfig> configs{
      {.max_new_tokens = 12},
      {.max_new_tokens = 12, .do_sample = true, .temperature = 0.8, .top_k = 7, .top_p = 0.9, .seed = 5},
      {.max_new_tokens = 12, .num_beams = 3, .length_penalty = 0.5},
  };
  std::vector<at::Tensor> texts[2];
  for (const bool there : {false, true}) {
    const at::Device where = there ? device() : at::Device(at::kCPU);
    gpt2->to(where);
    bart->to(where);
    for (const auto& config : configs) {
      texts[there].push_back(models::generate(gpt2, prompts.to(where), config));
      texts[there].push_back(
          models::generate(bart, prompts.to(where), at::ones_like(prompts).to(where), config));
      EXPECT_EQ(texts[there].back().device(), where);
    }
  }
  for (std::size_t i = 0; i < texts[0].size(); ++i)
    EXPECT_TRUE(at::equal(texts[0][i], texts[1][i].cpu())) << i << '\n' << texts[0][i] << texts[1][i];
}

TEST_P(OnDevice, ImagesAreThoseOfTheCpu) {
  const at::Tensor images = at::arange(4 * 3 * 8 * 8).mul(37).remainder(256).to(at::kByte).view({4, 3, 8, 8});
  const std::vector<float> mean{0.4F, 0.5F, 0.6F}, std{0.2F, 0.3F, 0.25F};
  const at::Tensor normal = normalize_images(images, mean, std);
  EXPECT_TRUE(at::allclose(normalize_images(images.to(device()), mean, std).cpu(), normal, 1e-5, 1e-6));
  for (const auto& options :
       {MixOptions{.mixup_alpha = 0.4, .classes = 5}, MixOptions{.cutmix_alpha = 1, .classes = 5}}) {
    const auto mix = [&](const at::Device& where) {
      Batch batch;
      batch.insert("image", normal.to(where));
      batch.insert("label", at::arange(4).to(where));
      return mix_batch(std::move(batch), options, 11);
    };
    const Batch here = mix(at::kCPU), there = mix(device());
    for (const char* name : {"image", "label"}) {
      EXPECT_EQ(there[name].device(), device());
      EXPECT_TRUE(at::allclose(there[name].cpu(), here[name], 1e-5, 1e-6)) << name;
    }
  }
}

TEST_P(OnDevice, MetricsAreThoseOfTheCpu) {
  const at::Tensor scores = at::arange(60).mul(0.71).sin().view({4, 5, 3});
  const at::Tensor labels = at::arange(20).mul(7).remainder(4).sub(1).view({4, 5});
  const at::Tensor known = at::where(labels < 0, at::full_like(labels, metrics::kIgnoredLabel), labels);
  const auto values = [&](const at::Device& where) {
    metrics::Accuracy accuracy;
    metrics::Classification classes(3);
    metrics::Perplexity perplexity;
    metrics::Regression regression;
    const at::Tensor at_scores = scores.to(where), at_known = known.to(where);
    accuracy.update(at_scores, at_known);
    classes.update(at_scores, at_known);
    perplexity.update(at_scores, at_known);
    regression.update(at_scores.select(2, 0).flatten(), at_scores.select(2, 1).flatten());
    std::vector<double> all{accuracy.compute(), perplexity.compute()};
    for (const auto& part : {classes.values(), regression.values()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const auto here = values(at::kCPU), there = values(device());
  for (std::size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(here[i], there[i], 1e-6) << i;
}

}  // namespace
}  // namespace lockstep
