// What fsdp_compare.py runs on each rank: fsdp_peer FOLDER STEPS trains a small GPT-2, fully sharded, from
// weights that it leaves in FOLDER, in float32 and in bfloat16. Rank 0 prints a line of JSON: the mean losses
// of all ranks after each step, the numbers that it keeps between steps, and whether models that were divided
// while they were made have the weights of others.

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

/// Rows of tokens, others on each rank and in each step.
at::Tensor tokens_of(int rank, int step) {
  return torch::arange(3 * 17, at::kLong).mul(7).add(rank * 13 + step * 5).remainder(101).view({3, 17});
}

lockstep::models::Gpt2LMHeadModel new_gpt2() {
  torch::manual_seed(5);
  return lockstep::models::Gpt2LMHeadModel(lockstep::models::Gpt2Config{.vocab_size = 101,
                                                                        .n_positions = 32,
                                                                        .n_embd = 32,
                                                                        .n_layer = 3,
                                                                        .n_head = 2,
                                                                        .resid_pdrop = 0,
                                                                        .embd_pdrop = 0,
                                                                        .attn_pdrop = 0,
                                                                        .initializer_range = 0.1});
}

lockstep::models::BertModel new_bert() {
  torch::manual_seed(6);
  return lockstep::models::BertModel(lockstep::models::BertConfig{.vocab_size = 31,
                                                                  .hidden_size = 12,
                                                                  .num_hidden_layers = 2,
                                                                  .num_attention_heads = 2,
                                                                  .intermediate_size = 20,
                                                                  .max_position_embeddings = 16});
}

/// Whether a model has the same weights, divided while it is made or not.
template <class Make>
bool has_same_weights(lockstep::Accelerator& accelerator, const Make& make) {
  auto init = accelerator.sharded_init();
  auto divided = make();
  init.reset();
  auto whole = make();
  auto model = accelerator.prepare(divided);
  bool same = true;
  const auto state = accelerator.get_state_dict(model);
  for (const auto& [name, tensor] : state)
    same = same && torch::equal(tensor, whole->named_parameters()[name].detach());
  return same && (!accelerator.is_main_process() || state.size() == whole->parameters().size());
}

/// The mean losses of all ranks.
template <class Model>
std::vector<double> train(lockstep::Accelerator& accelerator, Model& model, lockstep::optim::AdamW& adam,
                          int steps) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor tokens = tokens_of(accelerator.process_index(), step);
    const at::Tensor loss = lockstep::models::causal_lm_loss(model(tokens), tokens);
    loss.backward();
    adam.step();
    model.zero_grad();
    losses.push_back(accelerator.reduce(loss.detach()).template item<double>() / accelerator.num_processes());
  }
  return losses;
}

int train_both(const std::filesystem::path& folder, int steps) {
  lockstep::Accelerator accelerator(
      {.device = "cpu", .fsdp_plugin = lockstep::FullyShardedDataParallelPlugin{}});
  const bool same = has_same_weights(accelerator, new_gpt2) && has_same_weights(accelerator, new_bert);
  auto init = accelerator.sharded_init();
  auto whole = new_gpt2(), half = new_gpt2();
  init.reset();
  auto model = accelerator.prepare(whole);
  accelerator.save_model(model, folder);
  auto half_model = lockstep::fully_shard(
      half, accelerator.process_group(),
      {.mp_policy = {
           .param_dtype = at::kBFloat16, .reduce_dtype = at::kBFloat16, .output_dtype = at::kFloat}});
  lockstep::optim::AdamW adam(whole->parameters(), {.lr = 1e-2}), half_adam(half->parameters(), {.lr = 1e-2});
  const auto losses = train(accelerator, model.fsdp(), adam, steps);
  const auto half_losses = train(accelerator, half_model, half_adam, steps);
  std::int64_t numbers = 0;
  for (const auto& parameter : whole->parameters()) numbers += parameter.numel();
  accelerator.print(
      fmt::format(R"({{"losses": [{}], "bf16_losses": [{}], "numbers": {}, "same_weights": {}}})",
                  fmt::join(losses, ", "), fmt::join(half_losses, ", "), numbers, same));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("fsdp_peer", [&] {
    if (argc != 3) throw lockstep::UsageError("fsdp_peer FOLDER STEPS");
    return train_both(argv[1], std::atoi(argv[2]));
  });
}
