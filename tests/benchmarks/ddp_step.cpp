// The C++ side of ddp_step.py: trains a model for some steps and, on rank 0, prints of each how it went and
// its milliseconds.

#include <torch/nn/functional/loss.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <chrono>
#include <iostream>

#include "ddp_models.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/options.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/parallel/comm_hooks.hpp"
#include "lockstep/train/accelerator.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using lockstep::benchmarks::Example;

struct Options {
  std::string model = "mlp";
  std::string optimizer = "fused";
  std::string hook = "none";
  std::string backend = "auto";
  int steps = 20;
  int warmup = 8;  // Buckets are settled by then.
  std::string sync = "yes";
  bool view = false;
};

const lockstep::OptionTable<Options>& table() {
  using lockstep::one_of;
  static const auto options =
      lockstep::OptionTable<Options>("ddp_step", "Times the steps of a data-parallel training.")
          .add("model", &Options::model, "What is trained.", one_of({"mlp", "resnet", "gpt"}))
          .add("optimizer", &Options::optimizer, "AdamW: of this library, or of torch::optim.",
               one_of({"fused", "torch"}))
          .add("hook", &Options::hook, "How gradients travel.", one_of({"none", "all_reduce", "bf16"}))
          .add("backend", &Options::backend, "What carries gradients between ranks.")
          .add("steps", &Options::steps, "Steps that are timed.")
          .add("warmup", &Options::warmup, "Steps before them.")
          .add("sync", &Options::sync,
               "Average the gradients: yes; no: inside no_sync(); meet: so, and the ranks meet after "
               "backward; "
               "turns: no, meet, yes, no, ...",
               one_of({"yes", "no", "meet", "turns"}))
          .add("view", &Options::view, "gradient_as_bucket_view.");
  return options;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind,
                                                        std::vector<at::Tensor> parameters) {
  if (kind == "torch") return std::make_unique<torch::optim::AdamW>(parameters);
  return std::make_unique<lockstep::optim::AdamW>(parameters);
}

template <class Ddp>
void add_hook(Ddp& ddp, const std::string& hook) {
  if (hook == "all_reduce") ddp.register_comm_hook(std::make_shared<lockstep::AllReduceHook>());
  if (hook == "bf16") ddp.register_comm_hook(std::make_shared<lockstep::CompressHook>(at::kBFloat16));
}

const std::string& way_of(int step, const Options& options) {
  static const std::string turns[] = {"no", "meet", "yes"};
  return options.sync == "turns" ? turns[step % 3] : options.sync;
}

/// Waits for the other ranks, and sends nothing to speak of.
void meet(const lockstep::Accelerator& accelerator) {
  accelerator.process_group().all_reduce(at::zeros({1}));
}

template <class Model>
void train(lockstep::Accelerator& accelerator, const Options& options) {
  torch::manual_seed(1);
  Model model;
  const Example example = Model::Impl::example();
  const auto optimizer = make_optimizer(options.optimizer, model->parameters());
  auto [ddp, step] = accelerator.prepare(model, *optimizer);
  add_hook(ddp, options.hook);
  for (int i = 0; i < options.warmup + options.steps; ++i) {
    const std::string& way = way_of(i, options);
    const auto begin = Clock::now();
    {
      std::optional<lockstep::DistributedDataParallelBase::NoSync> alone;
      if (way != "yes") alone.emplace(ddp);
      accelerator.backward(torch::nn::functional::cross_entropy(ddp(example.first), example.second));
    }
    if (way == "meet") meet(accelerator);
    step.step();
    step.zero_grad();
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    if (i >= options.warmup) accelerator.print(way, ' ', took.count());
  }
}

int run(int argc, char** argv) {
  const Options options = table().parse(argc, argv).options;
  lockstep::Accelerator accelerator({.device = "cpu",
                                     .backend = lockstep::comm_backend_from(options.backend),
                                     .ddp = {.gradient_as_bucket_view = options.view}});
  if (options.model == "mlp") train<lockstep::benchmarks::Mlp>(accelerator, options);
  if (options.model == "resnet") train<lockstep::benchmarks::ResNet>(accelerator, options);
  if (options.model == "gpt") train<lockstep::benchmarks::Gpt>(accelerator, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::run_program("ddp_step", [&] { return run(argc, argv); });
}
