// Times save_state() of 42 million parameters with AdamW's state (504 MB): in the loop, and beside it. Prints
// 'sync SECONDS', 'stall SECONDS' (how long the loop waits) and 'async SECONDS' (until it is on the disk) for
// each round. Everything is flushed to the disk. tests/benchmarks/save.py runs it beside PyTorch's ways.
//
// Usage: save FOLDER [ROUNDS]

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "lockstep/optim/adam.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

torch::nn::Sequential make_model() {
  torch::nn::Sequential model;
  for (int layer = 0; layer < 10; ++layer) model->push_back(torch::nn::Linear(2048, 2048));
  return model;
}

void save_in_the_loop(const lockstep::Accelerator& accelerator, const fs::path& path) {
  const auto begin = Clock::now();
  accelerator.save_state(path);
  std::printf("sync %f\n", seconds_since(begin));
}

void save_beside_it(const lockstep::Accelerator& accelerator, const fs::path& path) {
  const auto begin = Clock::now();
  accelerator.save_state(path, {}, {.asynchronous = true});
  std::printf("stall %f\n", seconds_since(begin));
  accelerator.wait_for_save();
  std::printf("async %f\n", seconds_since(begin));
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path folder = argv[1];
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  lockstep::Accelerator accelerator({.device = "cpu"});
  auto module = make_model();
  lockstep::optim::AdamW adamw(module->parameters());
  auto [model, optimizer] = accelerator.prepare(module, adamw);
  accelerator.backward(model(torch::ones({1, 2048})).sum());
  optimizer.step();
  for (int round = 0; round < rounds; ++round) {
    save_in_the_loop(accelerator, folder / "sync");
    fs::remove_all(folder / "sync");
    save_beside_it(accelerator, folder / "async");
    fs::remove_all(folder / "async");
  }
  return 0;
}
