// What an optimizer's state costs a rank, divided over the ranks or not: zero_memory whole|divided MILLIONS
//
//     for kind in whole divided; do lockstep run --nproc-per-node 4 build/tests/zero_memory $kind 50; done

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>

#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"

namespace {

namespace optim = lockstep::optim;

constexpr int kLayers = 20;
constexpr int kSteps = 5;

/// Resident memory of this process in MiB.
double resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

double mebibytes(const lockstep::TensorMap& tensors) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return static_cast<double>(bytes) / (1 << 20);
}

double median_step_ms(torch::optim::Optimizer& optimizer, const lockstep::ProcessGroup& group) {
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) {
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    optimizer.step();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kSteps / 2, times.end());
  return times[kSteps / 2];
}

int run(int argc, char** argv) {
  const bool divided = argc > 1 && std::string(argv[1]) == "divided";
  const std::int64_t elements = (argc > 2 ? std::stoll(argv[2]) : 20) * 1'000'000 / kLayers;
  const auto group = lockstep::ProcessGroup::init(lockstep::World::from_environment());
  std::vector<at::Tensor> parameters;
  for (int layer = 0; layer < kLayers; ++layer) {
    parameters.push_back(torch::zeros({elements}).requires_grad_());
    parameters.back().mutable_grad() = torch::ones({elements});
  }
  const double before = resident();
  auto whole = std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 1e-3});
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  torch::optim::Optimizer* holder = whole.get();
  if (divided) {
    optimizer = std::make_unique<optim::ZeroRedundancyOptimizer>(std::move(whole), group);
  } else {
    optimizer = std::move(whole);
  }
  const double milliseconds = median_step_ms(*optimizer, group);
  std::cout << "rank " + std::to_string(group.rank()) + ": state " +
                   std::to_string(mebibytes(lockstep::optimizer_state(*holder, {}).tensors)) +
                   " MiB, resident memory grew by " + std::to_string(resident() - before) +
                   " MiB, a step took " + std::to_string(milliseconds) + " ms\n";
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("zero_memory", [&] { return run(argc, argv); });
}
