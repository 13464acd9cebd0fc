// The plain loop of distributed data-parallel training: lockstep run --nproc-per-node 2 ddp
#include <lockstep/lockstep.hpp>

#include <torch/nn.h>

#include <iostream>

using namespace lockstep;

/// Points in the plane, and whether each is inside a circle.
std::shared_ptr<Dataset> make_points(std::int64_t count) {
  torch::manual_seed(0);
  const auto point = torch::rand({count, 2}) * 2 - 1;
  return std::make_shared<TensorDataset>(
      Batch{{"point", point}, {"label", (point.square().sum(1) < 0.5).to(torch::kLong)}});
}

int run() {
  const auto world = World::from_environment();    // the launcher's RANK, WORLD_SIZE, ...; without one, a world of one
  const auto group = ProcessGroup::init(world);    // connects all ranks

  const auto dataset = make_points(4096);
  const auto sampler = std::make_shared<DistributedSampler>(
      dataset->size(), DistributedSamplerOptions{.num_replicas = group.size(), .rank = group.rank()});
  DataLoader loader(dataset, {.batch_size = 32, .sampler = sampler});

  torch::nn::Sequential model(torch::nn::Linear(2, 32), torch::nn::ReLU(), torch::nn::Linear(32, 2));
  DistributedDataParallel ddp(model, group);       // broadcasts rank 0's weights to every rank
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-2});

  for (int epoch = 0; epoch < 3; ++epoch) {
    loader.set_epoch(epoch);                       // a different order in each epoch
    auto total = torch::zeros({});
    for (auto& batch : loader) {
      const auto loss = torch::nn::functional::cross_entropy(ddp(batch["point"]), batch["label"]);
      loss.backward();                             // also averages the gradients over the ranks
      optimizer.step();
      ddp.zero_grad();
      total += loss.detach();
    }
    group.all_reduce(total);
    const double mean = total.item<double>() / static_cast<double>(loader.size() * group.size());
    if (group.rank() == 0) std::cout << "epoch " << epoch + 1 << ": loss " << mean << std::endl;
  }

  if (group.rank() == 0) {
    TensorMap weights;
    for (const auto& [name, tensor] : ddp.parameters()) weights[name] = tensor;
    save_file(weights, "ddp.safetensors");         // read in Python by safetensors.torch.load_file
  }
  return 0;
}

int main() { return run_program("ddp", run); }
