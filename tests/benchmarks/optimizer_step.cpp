// Times a step of this library's optimizers and of torch::optim's, in turns, on the parameters of the small
// GPT of ddp_models.hpp, and prints medians in milliseconds and their ratio. One thread.
//
// Usage: optimizer_step [ROUNDS]

#include <torch/optim.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/runtime/malloc_tuning.hpp"
#include "ddp_models.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

double milliseconds_of_step(torch::optim::Optimizer& optimizer) {
  const auto begin = Clock::now();
  optimizer.step();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void compare(const char* name, torch::optim::Optimizer& ours, torch::optim::Optimizer& theirs, int rounds) {
  std::vector<double> our_times, their_times;
  for (int round = 0; round < rounds + 2; ++round) {
    const double our_time = milliseconds_of_step(ours), their_time = milliseconds_of_step(theirs);
    if (round < 2) continue;  // State is made in the first steps.
    our_times.push_back(our_time);
    their_times.push_back(their_time);
  }
  std::printf("%-14s lockstep::optim %7.2f   torch::optim %7.2f   ratio %5.1f\n", name, median(our_times),
              median(their_times), median(their_times) / median(our_times));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  at::set_num_threads(1);
  lockstep::tune_malloc(lockstep::process_environment());
  lockstep::benchmarks::Gpt model;
  const Tensors all = model->parameters();
  for (const auto& parameter : all) parameter.mutable_grad() = torch::randn_like(parameter).mul_(0.01);
  lockstep::optim::AdamW our_adamw(all);
  torch::optim::AdamW their_adamw(all);
  compare("AdamW", our_adamw, their_adamw, rounds);
  lockstep::optim::Adam our_adam(all);
  torch::optim::Adam their_adam(all);
  compare("Adam", our_adam, their_adam, rounds);
  lockstep::optim::SGD our_sgd(all, {.lr = 1e-4, .momentum = 0.9, .weight_decay = 0.01});
  torch::optim::SGD their_sgd(all, torch::optim::SGDOptions(1e-4).momentum(0.9).weight_decay(0.01));
  compare("SGD, momentum", our_sgd, their_sgd, rounds);
  return 0;
}
