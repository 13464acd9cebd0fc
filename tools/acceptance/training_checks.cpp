#include <torch/nn.h>
#include <torch/optim.h>

#include "checks.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/optim/lr_scheduler.hpp"

namespace acceptance {
namespace {

using lockstep::Accelerator;

constexpr int kSteps = 4;
constexpr std::int64_t kGlobalBatch = 2520;  // Divisible by three micro-batches of up to 8 ranks.

torch::nn::Sequential make_network() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
}

at::Tensor inputs() { return torch::linspace(-2, 2, kSteps * kGlobalBatch * 4).view({-1, 4}); }

at::Tensor losses_of(const at::Tensor& output, const at::Tensor& input) {
  return (output - input.sum(1, true).sin()).pow(2);
}

/// The weights that one process comes to with the global batches.
std::vector<at::Tensor> trained_alone() {
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 0.05);
  for (const auto& batch : inputs().split(kGlobalBatch)) {
    sgd.zero_grad();
    losses_of(network->forward(batch), batch).mean().backward();
    sgd.step();
  }
  return network->parameters();
}

/// Each global batch is divided between the ranks, and again into micro-batches. `own` gives the options of
/// this kind of training.
void train_divided(Accelerator& accelerator, std::int64_t micro_batches, bool weighted) {
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 0.05);
  auto [model, optimizer] = accelerator.prepare(network, sgd);
  const std::int64_t share = kGlobalBatch / accelerator.num_processes();
  accelerator.set_gradient_accumulation_steps(micro_batches);
  for (const auto& global : inputs().split(kGlobalBatch)) {
    const at::Tensor mine = global.narrow(0, share * accelerator.process_index(), share);
    for (const auto& part : mine.chunk(micro_batches)) {
      const auto step = accelerator.accumulate();
      const at::Tensor input = part.to(accelerator.device());
      const at::Tensor losses = losses_of(model(input), input);
      weighted ? accelerator.backward(losses.sum(), static_cast<double>(losses.numel()))
               : accelerator.backward(losses.mean());
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  accelerator.set_gradient_accumulation_steps(1);
  accelerator.free_memory();
  const auto wanted = trained_alone();
  const auto found = network->parameters();
  for (std::size_t i = 0; i < found.size(); ++i)
    require_close(found[i], wanted[i], 1e-4, "the weights and those of one process");
}

void trains_as_one(Accelerator& accelerator) { train_divided(accelerator, 1, false); }
void accumulates(Accelerator& accelerator) { train_divided(accelerator, 3, false); }
void weighs(Accelerator& accelerator) { train_divided(accelerator, 2, true); }

void schedules_by_steps(Accelerator& accelerator) {
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 1.0);
  lockstep::optim::LrScheduler linear(sgd, {.name = "linear", .num_training_steps = 10});
  auto [model, optimizer, scheduler] = accelerator.prepare(network, sgd, linear);
  const at::Tensor input = inputs().narrow(0, 0, 8).to(accelerator.device());
  for (int i = 0; i < 4; ++i) {
    accelerator.backward(losses_of(model(input), input).mean());
    optimizer.step();
    scheduler.step();
  }
  accelerator.free_memory();
  require(std::abs(linear.last_lr()[0] - 0.6) < 1e-12,
          "the learning rate did not follow the optimizer's steps");
}

void computes_in_half_width(Accelerator& accelerator) {
  const lockstep::Autocast cast(accelerator.device(), lockstep::MixedPrecision::bf16);
  const at::Tensor ones = torch::ones({4, 4}, accelerator.device());
  const at::Tensor product = torch::mm(ones, ones);
  require(product.scalar_type() == torch::kBFloat16, "autocast did not take effect");
  require_close(product.to(torch::kFloat), torch::full({4, 4}, 4.0), 0, "products in bfloat16");
}

}  // namespace

std::vector<Check> training_checks() {
  return {{"many ranks train as one", trains_as_one},
          {"micro-batches add up to a batch", accumulates},
          {"weighted losses do not depend on the division", weighs},
          {"schedules count optimizer steps", schedules_by_steps},
          {"autocast computes in bfloat16", computes_in_half_width}};
}

}  // namespace acceptance
