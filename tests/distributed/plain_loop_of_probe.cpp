#include "plain_loop_of_probe.hpp"

#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/core/world.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/train/elastic.hpp"

namespace lockstep::testing {
namespace {

/// A moving average of the weights: what a program keeps beside its optimizer.
class Average final : public Checkpointable {
 public:
  explicit Average(const torch::nn::Module& module) {
    for (const auto& weight : module.parameters()) values_.push_back(weight.detach().clone());
  }
  void update(const torch::nn::Module& module) {
    const at::NoGradGuard no_grad;
    const auto weights = module.parameters();
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i].mul_(0.9).add_(weights[i], 0.1);
  }
  SafeTensors state_dict() const override {
    SafeTensors state;
    for (std::size_t i = 0; i < values_.size(); ++i)
      state.tensors.emplace(std::to_string(i), values_[i].clone());
    return state;
  }
  void load_state_dict(const SafeTensors& state) override {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i].copy_(state.tensors.at(std::to_string(i)));
  }

 private:
  std::vector<at::Tensor> values_;
};

std::ofstream open(const LossPlan& plan, const char* name, int rank) {
  return std::ofstream(plan.folder + "/" + name + "." + std::to_string(rank), std::ios::app);
}

void write_loss(std::ofstream& file, std::uint64_t step, const at::Tensor& loss) {
  char line[64];
  std::snprintf(line, sizeof(line), "%llu %a", static_cast<unsigned long long>(step), loss.item<double>());
  file << line << std::endl;
}

void write_state(const std::string& folder, const torch::nn::Module& module,
                 const torch::optim::AdamW& optimizer, const Average& average) {
  std::filesystem::create_directories(folder);
  TensorMap weights, moments;
  for (const auto& entry : module.named_parameters()) weights.emplace(entry.key(), entry.value().detach());
  for (const auto& entry : module.named_buffers()) weights.emplace(entry.key(), entry.value());
  for (const auto& entry : module.named_parameters()) {
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *optimizer.state().at(entry.value().unsafeGetTensorImpl()));
    moments.emplace(entry.key() + ".mean", state.exp_avg());
    moments.emplace(entry.key() + ".square", state.exp_avg_sq());
  }
  save_file(weights, folder + "/weights.safetensors");
  save_file(moments, folder + "/moments.safetensors");
  save_file(average.state_dict().tensors, folder + "/average.safetensors");
}

}  // namespace

int train_by_plain_loop(const LossPlan& plan, const PlainTraining& how) {
  const World world = World::from_environment();
  const ProcessGroup group = ProcessGroup::init(world);
  open(plan, "pids", group.rank()) << ::getpid() << std::endl;
  const LostRanks lost(plan, group.rank(), group.size());
  lost.in_set_up();

  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(6, 32), torch::nn::BatchNorm1d(32), torch::nn::ReLU(),
                            torch::nn::Dropout(0.3), torch::nn::Linear(32, 1));
  const at::Tensor x = torch::randn({400, 6});
  const auto data = std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", x.sum(1, true).sin()}});
  const auto sampler = std::make_shared<DistributedSampler>(
      data->size(), DistributedSamplerOptions{.num_replicas = group.size(), .rank = group.rank()});
  DataLoader loader(data, {.batch_size = 4, .num_workers = 1, .sampler = sampler});
  DistributedDataParallel ddp(net, group);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  optim::LrScheduler schedule(optimizer,
                              {.name = "cosine", .num_warmup_steps = 5, .num_training_steps = 200});
  Average average(*net);
  std::ofstream losses = open(plan, "losses", group.rank()), changes = open(plan, "changes", group.rank());

  ElasticState state(world, group);
  state.add(ddp);
  state.add(optimizer);
  state.add(schedule);
  state.add(loader);
  state.add("average", average);
  state.on_change([&](const GroupChange& change) {
    changes << fmt::format("{} {} after {}", change.generation, change.replaced, change.step) << std::endl;
  });

  const auto train_step = [&](Batch& batch) {
    const std::uint64_t step = state.step();
    const at::Tensor loss = torch::mse_loss(ddp(batch["x"]), batch["y"]);
    lost.in_step(static_cast<std::int64_t>(step), loss);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    ddp.zero_grad();
    schedule.step();
    average.update(*net);
    if (how.misuse == "early" && step == 10) {
      if (group.rank() == 1) ::raise(SIGKILL);
      group.all_reduce(torch::ones({1}));
    }
    state.commit();
    write_loss(losses, step, loss);
    std::this_thread::sleep_for(std::chrono::milliseconds(how.step_time));
  };
  if (how.misuse == "count") {
    run_elastic(state, [&] {
      for (int epoch = 0; epoch < how.epochs; ++epoch) {
        loader.set_epoch(epoch);
        for (auto& batch : loader) train_step(batch);
      }
    });
    return 0;
  }
  run_elastic(state, [&] {
    while (loader.epoch() < how.epochs) {
      for (auto& batch : loader) train_step(batch);
    }
  });

  if (group.rank() == 0) write_state(plan.folder + "/final", *net, optimizer, average);
  return 0;
}

}  // namespace lockstep::testing
