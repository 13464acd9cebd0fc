// What fsdp_compare.py runs on each rank: fsdp_peer FOLDER STEPS trains a small GPT-2, fully sharded, from
// weights that it leaves in FOLDER. Rank 0 prints a line of JSON: the mean loss of all ranks after each step,
// and the numbers that it keeps between steps.

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

/// Rows of tokens, others on each rank and in each step.
at::Tensor tokens_of(int rank, int step) {
  return torch::arange(3 * 17, at::kLong).mul(7).add(rank * 13 + step * 5).remainder(101).view({3, 17});
}

int train(const std::filesystem::path& folder, int steps) {
  torch::manual_seed(5);
  lockstep::Accelerator accelerator(
      {.device = "cpu", .fsdp_plugin = lockstep::FullyShardedDataParallelPlugin{}});
  lockstep::models::Gpt2LMHeadModel gpt2(lockstep::models::Gpt2Config{.vocab_size = 101,
                                                                      .n_positions = 32,
                                                                      .n_embd = 32,
                                                                      .n_layer = 3,
                                                                      .n_head = 2,
                                                                      .resid_pdrop = 0,
                                                                      .embd_pdrop = 0,
                                                                      .attn_pdrop = 0,
                                                                      .initializer_range = 0.1});
  auto model = accelerator.prepare(gpt2);
  accelerator.save_model(model, folder);
  lockstep::optim::AdamW adam(gpt2->parameters(), {.lr = 1e-2});
  auto optimizer = accelerator.prepare(adam);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor tokens = tokens_of(accelerator.process_index(), step);
    const at::Tensor loss = lockstep::models::causal_lm_loss(model(tokens), tokens);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(accelerator.reduce(loss.detach()).item<double>() / accelerator.num_processes());
  }
  std::int64_t numbers = 0;
  for (const auto& parameter : gpt2->parameters()) numbers += parameter.numel();
  accelerator.print(fmt::format("{{\"losses\": [{}], \"numbers\": {}}}", fmt::join(losses, ", "), numbers));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("fsdp_peer", [&] {
    if (argc != 3) throw lockstep::UsageError("fsdp_peer FOLDER STEPS");
    return train(argv[1], std::atoi(argv[2]));
  });
}
