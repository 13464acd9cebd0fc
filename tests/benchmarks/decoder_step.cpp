// Times steps of a decoder with its language-model loss, or the memory of a loss; one thread.
//
//     decoder_step FOLDER full|lora|loss ROWS TOKENS STEPS
//
// `full` trains all weights with AdamW and an Accelerator, `lora` adapters of rank 16 of all linear layers,
// `loss` only computes the loss and its gradients. Prints the first loss, the milliseconds of each step, and
// the resident memory that all of them needed at most beyond what the model had, in MiB.

#include <torch/types.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

namespace models = lockstep::models;
using Clock = std::chrono::steady_clock;

/// A line of /proc/self/status in MiB.
double status(const std::string& name) {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size())) / 1024;
  }
  return 0;
}

/// The resident size, with which VmHWM begins anew: loading may have needed more than the steps do.
double begin_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
  return status("VmRSS:");
}

/// The same ids as decoder_step.py's.
at::Tensor make_ids(std::int64_t rows, std::int64_t tokens, std::int64_t vocabulary) {
  return (torch::arange(rows * tokens) * 7919 % vocabulary).reshape({rows, tokens});
}

/// The first loss, the milliseconds of each step, and the memory that all of them needed at most beyond what
/// the process has now.
void time_steps(int steps, const std::function<at::Tensor()>& step_and_loss) {
  const double before = begin_peak();
  for (int step = 0; step < steps; ++step) {
    const auto begin = Clock::now();
    const at::Tensor loss = step_and_loss();
    const std::chrono::duration<double, std::milli> time = Clock::now() - begin;
    if (step == 0) std::printf("loss %.4f\n", loss.item<double>());
    std::printf("step %.3f\n", time.count());
  }
  std::printf("memory %.1f\n", status("VmHWM:") - before);
}

void time_loss(models::CausalLM model, const at::Tensor& ids, int steps) {
  time_steps(steps, [&] {
    model->zero_grad();
    const auto losses = model->token_losses(ids, {}, ids);
    at::Tensor loss = losses.loss_sum / losses.loss_weight;
    loss.backward();
    return loss;
  });
}

/// As programs train: with an Accelerator, of one rank.
void time_training(const models::CausalLM& model, const at::Tensor& ids, int steps) {
  lockstep::Accelerator accelerator(lockstep::World::single(), {.device = "cpu"});
  std::vector<at::Tensor> trained;
  for (const auto& parameter : model->parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  lockstep::optim::AdamW adam(trained, {.lr = 1e-4});
  models::TokenLossModel with_loss(model);
  auto [wrapped, optimizer] = accelerator.prepare(with_loss, adam);
  time_steps(steps, [&, &wrapped = wrapped, &optimizer = optimizer] {
    const auto losses = wrapped(models::LabelledTexts{.input_ids = ids, .labels = ids});
    accelerator.backward(losses.loss_sum, losses.loss_weight);
    optimizer.step();
    optimizer.zero_grad();
    return at::Tensor(losses.loss_sum.detach() / losses.loss_weight);
  });
}

int run(const std::string& folder, const std::string& what, std::int64_t rows, std::int64_t tokens,
        int steps) {
  at::set_num_threads(1);
  torch::manual_seed(0);
  auto model = models::AutoModelForCausalLM::from_pretrained(folder);
  if (what == "lora") models::add_lora(model, {.r = 16, .lora_alpha = 32, .target_modules = "all-linear"});
  model->train();
  const at::Tensor ids = make_ids(rows, tokens, model->model_config().vocab_size);
  if (what == "loss") {
    time_loss(model, ids, steps);
  } else {
    time_training(model, ids, steps);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("decoder_step", [&] {
    if (argc != 6) throw lockstep::UsageError("decoder_step FOLDER full|lora|loss ROWS TOKENS STEPS");
    return run(argv[1], argv[2], std::stoll(argv[3]), std::stoll(argv[4]), std::stoi(argv[5]));
  });
}
