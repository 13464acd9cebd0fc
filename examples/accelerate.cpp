// Hugging Face Accelerate's loop: accumulation, clipping, a schedule, exact metrics, and resuming from checkpoints.
//     lockstep run --nproc-per-node 2 accelerate
#include <lockstep/lockstep.hpp>

#include <torch/nn.h>

using namespace lockstep;

/// Points in the plane, and whether each is inside a circle.
std::shared_ptr<Dataset> make_points(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto point = torch::rand({count, 2}) * 2 - 1;
  return std::make_shared<TensorDataset>(
      Batch{{"point", point}, {"label", (point.square().sum(1) < 0.5).to(torch::kLong)}});
}

int run() {
  constexpr int kEpochs = 3;
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  torch::manual_seed(42);
  torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::ReLU(), torch::nn::Linear(32, 2));
  optim::AdamW adam(net->parameters(), {.lr = 3e-2});
  DataLoader train_loader(make_points(4096, 0), {.batch_size = 32, .shuffle = true});
  DataLoader test_loader(make_points(1000, 1), {.batch_size = 100});
  auto batches = accelerator.prepare(train_loader);  // of this rank: their number determines the schedule
  const auto steps = kEpochs * ((batches.size() + 1) / accelerator.gradient_accumulation_steps());
  optim::LrScheduler linear(adam, {.name = "linear", .num_warmup_steps = 10, .num_training_steps = steps});
  auto [model, optimizer, scheduler, test_batches] = accelerator.prepare(net, adam, linear, test_loader);

  const auto resumed = accelerator.load_latest_state("accelerate_run");  // after a crash, continues bit for bit
  for (auto epoch = resumed.checkpoint ? batches.epoch() : 0; epoch < kEpochs; ++epoch) {
    for (auto& batch : batches) {
      const auto step = accelerator.accumulate(model);
      accelerator.backward(torch::nn::functional::cross_entropy(model(batch["point"]), batch["label"]));
      if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model, 1.0);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
    }
    const torch::NoGradGuard no_grad;
    std::int64_t right = 0, all = 0;
    for (auto& batch : test_batches) {
      auto [guess, label] = accelerator.gather_for_metrics(std::tuple{model(batch["point"]).argmax(1), batch["label"]}, batch);
      right += (guess == label).sum().item<std::int64_t>();
      all += label.size(0);
    }
    accelerator.print("epoch ", epoch + 1, ": ", right, " of ", all, " right, learning rate ", scheduler.last_lr()[0]);
    accelerator.save_state("accelerate_run/checkpoint-" + std::to_string(epoch + 1), {.step = epoch + 1});
  }
  accelerator.save_model(model, "accelerate_run/model");
  return 0;
}

int main() { return run_program("accelerate", run); }
