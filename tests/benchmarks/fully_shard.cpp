// What a step and its memory cost where weights, gradients and optimizer state are sharded, beside
// DistributedDataParallel: fully_shard_benchmark [LAYERS [WIDTH [checkpoint | times]]]
//
//     lockstep run --nproc-per-node 2 build/tests/fully_shard_benchmark 12 256
//
// The kinds take turns in the same processes; memory is what the heap's live blocks (mallinfo2) and the
// resident shared memory are at most. "checkpoint": all with activation checkpointing. "times": the
// milliseconds of each step instead, also of steps without communication. The allocator is tuned as an
// Accelerator tunes it.

#include <malloc.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "core/runtime/malloc_tuning.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/fully_shard.hpp"

namespace {

using lockstep::models::Gpt2LMHeadModel;

constexpr int kRounds = 9;
constexpr std::int64_t kVocabulary = 1000, kTokens = 64;

double shared_mebibytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kibibytes = 0;
  while (status >> word)
    if (word == "RssShmem:") status >> kibibytes;
  return kibibytes / (1 << 10);
}

double live_mebibytes() {
  const auto info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20) + shared_mebibytes();
}

/// The most that is alive while it runs.
class PeakMemory {
 public:
  double stop() {
    stopped_ = true;
    thread_.join();
    return peak_;
  }

 private:
  std::atomic<bool> stopped_ = false;
  double peak_ = 0;
  std::thread thread_{[this] {
    while (!stopped_) {
      peak_ = std::max(peak_, live_mebibytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }};
};

/// One way to train: a step, and what it was measured as.
struct Kind {
  std::string name;
  std::function<void()> step;
  double at_rest = 0, peak = 0;
  std::vector<double> times = {};
};

Gpt2LMHeadModel make_model(std::int64_t layers, std::int64_t width, bool checkpoint) {
  Gpt2LMHeadModel model(lockstep::models::Gpt2Config{.vocab_size = kVocabulary,
                                                     .n_positions = kTokens,
                                                     .n_embd = width,
                                                     .n_layer = layers,
                                                     .n_head = width / 32});
  lockstep::set_activation_checkpointing(model, checkpoint);
  return model;
}

/// A step of the wrapped model, which lives as long as the function.
template <class Wrapped>
std::function<void()> step_of(std::shared_ptr<Wrapped> model, int rank) {
  std::vector<at::Tensor> parameters;
  for (const auto& entry : model->parameters()) parameters.push_back(entry.tensor);
  auto optimizer = std::make_shared<lockstep::optim::AdamW>(parameters);
  return [model, optimizer, rank] {
    const at::Tensor ids = torch::arange(4 * kTokens).mul(rank + 7).remainder(kVocabulary).view({4, kTokens});
    lockstep::models::causal_lm_loss((*model)(ids), ids).backward();
    optimizer->step();
    model->zero_grad();
  };
}

int run(int argc, char** argv) {
  const std::int64_t layers = argc > 1 ? std::stoll(argv[1]) : 12;
  const std::int64_t width = argc > 2 ? std::stoll(argv[2]) : 256;
  const std::string how = argc > 3 ? argv[3] : "";
  const bool checkpoint = how == "checkpoint";
  lockstep::tune_malloc(lockstep::process_environment());
  const auto group = lockstep::ProcessGroup::init(lockstep::World::from_environment());
  std::vector<Kind> kinds;
  const auto add = [&](const std::string& name, const auto& wrap) {
    const double before = live_mebibytes();
    kinds.push_back({.name = name, .step = wrap()});
    kinds.back().step();
    PeakMemory memory;
    kinds.back().step();
    kinds.back().peak = memory.stop() - before;
    kinds.back().at_rest = live_mebibytes() - before;
  };
  using Ddp = lockstep::DistributedDataParallel<Gpt2LMHeadModel>;
  using Sharded = lockstep::FullyShardedDataParallel<Gpt2LMHeadModel>;
  add("DDP", [&] {
    const lockstep::DistributedDataParallelOptions options{.gradient_as_bucket_view = true};
    return step_of(std::make_shared<Ddp>(make_model(layers, width, checkpoint), group, options),
                   group.rank());
  });
  for (const bool reshard : {false, true}) {
    add(reshard ? "full shard" : "no reshard after forward", [&] {
      const lockstep::FullyShardOptions options{.reshard_after_forward = reshard};
      return step_of(std::make_shared<Sharded>(make_model(layers, width, checkpoint), group, options),
                     group.rank());
    });
  }
  if (how == "times") {
    add("alone", [&] {
      auto model = std::make_shared<Ddp>(make_model(layers, width, false), group);
      auto step = step_of(model, group.rank());
      return [model, step] {
        const auto alone = model->no_sync();
        step();
      };
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    for (auto& kind : kinds) {
      group.barrier();
      const auto begin = std::chrono::steady_clock::now();
      kind.step();
      group.barrier();
      kind.times.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  if (group.rank() > 0) return 0;
  if (how == "times") {
    for (const auto& kind : kinds) {
      for (const double time : kind.times) std::cout << kind.name << ": " << time << '\n';
    }
    return 0;
  }
  const auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
    return values[kRounds / 2];
  };
  for (const auto& kind : kinds) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < kind.times.size(); ++i) ratios.push_back(kind.times[i] / kinds[0].times[i]);
    std::cout << kind.name << ": " << kind.at_rest << " MiB between steps, " << kind.peak << " MiB at most ("
              << kind.peak / kinds[0].peak << " of DDP's), " << median(kind.times) << " ms a step, "
              << median(ratios) << " of DDP's\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("fully_shard_benchmark", [&] { return run(argc, argv); });
}
