#pragma once

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/parallel/unit.hpp"
#include "lockstep/train/accelerator.hpp"
#include "small_trainings.hpp"

// A training with an Accelerator whose model may be fully sharded.
namespace lockstep::testing {

namespace fs = std::filesystem;
using Losses = std::vector<double>;

class JobBlockImpl : public torch::nn::Module, public Unit {
 public:
  JobBlockImpl()
      : in(register_module("in", torch::nn::Linear(5, 7))),
        out(register_module("out", torch::nn::Linear(7, 5))) {}
  at::Tensor forward(const at::Tensor& states) { return through(*this, &JobBlockImpl::body, states); }

 private:
  at::Tensor body(const at::Tensor& states) { return states + out(torch::tanh(in(states))); }
  torch::nn::Linear in, out;
};
TORCH_MODULE(JobBlock);

/// Two units, a buffer, a frozen parameter, and a layer with two names.
class JobNetImpl : public torch::nn::Module {
 public:
  JobNetImpl() {
    first = register_module("first", torch::nn::Linear(3, 5));
    blocks->push_back(JobBlock());
    blocks->push_back(JobBlock());
    register_module("blocks", blocks);
    shared = register_module("shared", torch::nn::Linear(5, 5));
    again = register_module("again", shared);
    last = register_module("last", torch::nn::Linear(5, 1));
    scale = register_buffer("scale", torch::full({5}, 0.5));
    first->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor states = first(input);
    for (std::size_t i = 0; i < 2; ++i) states = blocks->at<JobBlockImpl>(i).forward(states);
    return last(again(torch::tanh(shared(states * scale.to(states.scalar_type())))));
  }
  torch::nn::Linear first{nullptr}, shared{nullptr}, again{nullptr}, last{nullptr};
  torch::nn::ModuleList blocks;
  at::Tensor scale;
};
TORCH_MODULE(JobNet);

/// New modules draw from the process's generator, which the ranks' threads share.
inline JobNet seeded_net(std::uint64_t seed) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  return JobNet();
}

/// The parameters, each once.
inline std::vector<at::Tensor> parameters_of(const JobNet& net) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : net->parameters()) {
    const bool is_new = std::none_of(result.begin(), result.end(),
                                     [&](const at::Tensor& other) { return other.is_same(parameter); });
    if (is_new) result.push_back(parameter);
  }
  return result;
}

inline AcceleratorOptions sharded(bool on = true, std::int64_t accumulation = 1) {
  AcceleratorOptions options{.gradient_accumulation_steps = accumulation};
  if (on) options.fsdp_plugin.emplace();
  return options;
}

class Job {
 public:
  explicit Job(Accelerator& accelerator, std::uint64_t seed = 1)
      : net(seeded_net(seed)),
        optimizer(parameters_of(net), {.lr = 0.05}),
        accelerator_(accelerator),
        model(accelerator.prepare(net)),
        accelerated(accelerator.prepare(optimizer)),
        loader(accelerator.prepare(DataLoader(samples(48), {.batch_size = 2, .shuffle = true, .seed = 9}))) {}

  Losses train(int steps) {
    Losses losses;
    while (steps > 0) {
      for (auto& batch : loader) {
        const auto micro = accelerator_.accumulate();
        const at::Tensor loss = torch::mse_loss(model(batch["x"]), batch["y"]);
        accelerator_.backward(loss);
        if (accelerator_.sync_gradients())
          norms.push_back(accelerator_.clip_grad_norm_(model, 0.3).item<double>());
        accelerated.step();
        accelerated.zero_grad();
        losses.push_back(loss.item<double>());
        if (--steps == 0) break;
      }
    }
    return losses;
  }

  JobNet net;
  optim::AdamW optimizer;

 private:
  Accelerator& accelerator_;

 public:
  AcceleratedModel<JobNet> model;
  AcceleratedOptimizer accelerated;
  DataLoader loader;
  Losses norms;
};

inline void expect_near(const Losses& one, const Losses& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-5) << i;
}

inline void expect_same_tensors(const fs::path& one, const fs::path& other) {
  const auto here = load_file(one).tensors, there = load_file(other).tensors;
  ASSERT_EQ(here.size(), there.size());
  ASSERT_GT(here.size(), 10U);
  for (const auto& [name, tensor] : here) EXPECT_TRUE(torch::equal(tensor, there.at(name))) << name;
}

}  // namespace lockstep::testing
