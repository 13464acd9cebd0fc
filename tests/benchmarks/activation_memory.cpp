// What activation checkpointing saves and costs in a GPT-2: activation_memory none|checkpoint [LAYERS [ROWS]]
//
//     for kind in none checkpoint; do lockstep run --nproc-per-node 2 build/tests/activation_memory $kind;
//     done

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/unit.hpp"

namespace {

constexpr int kSteps = 5;
constexpr std::int64_t kTokens = 256;
constexpr std::int64_t kWords = 1000;

/// A line of /proc/self/status in MiB.
double status(const std::string& name) {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size())) / 1024;
  }
  return 0;
}

int run(int argc, char** argv) {
  const bool checkpointing = argc > 1 && std::string(argv[1]) == "checkpoint";
  const std::int64_t layers = argc > 2 ? std::stoll(argv[2]) : 12;
  const std::int64_t rows = argc > 3 ? std::stoll(argv[3]) : 4;
  const auto group = lockstep::ProcessGroup::init(lockstep::World::from_environment());
  lockstep::models::Gpt2LMHeadModel model(lockstep::models::Gpt2Config{
      .vocab_size = kWords, .n_positions = kTokens, .n_embd = 256, .n_layer = layers, .n_head = 8});
  lockstep::set_activation_checkpointing(model, checkpointing);
  lockstep::DistributedDataParallel ddp(model, group, {.gradient_as_bucket_view = true});
  const at::Tensor ids = torch::randint(kWords, {rows, kTokens});
  std::vector<double> times;
  double before = 0;
  for (int step = 0; step < kSteps; ++step) {
    ddp.zero_grad();
    if (step == 0) {
      std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM begins anew.
      before = status("VmRSS:");
    }
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    lockstep::models::causal_lm_loss(ddp(ids), ids).backward();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kSteps / 2, times.end());
  if (group.rank() == 0) {
    std::cout << "checkpointing " << checkpointing << " layers " << layers << " rows " << rows
              << " peak_above_model_mib " << status("VmHWM:") - before << " step_s " << times[kSteps / 2]
              << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("activation_memory", [&] { return run(argc, argv); });
}
