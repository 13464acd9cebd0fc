#include <c10/util/Logging.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <thread>

#include "lockstep/core/error.hpp"
#include "probe.hpp"

namespace probe {
namespace {

using lockstep::Accelerator;

/// More operations than any test runs, but finite.
constexpr int kEndless = 1'000'000;

void all_reduce_on_and_on(const Accelerator& accelerator) {
  const at::Tensor tensor = torch::ones({100'000}, accelerator.device());
  for (int i = 0; i < kEndless; ++i) {
    tensor.fill_(1);
    accelerator.process_group().all_reduce(tensor);
  }
}

/// A model that may differ between ranks.
struct OddModel : torch::nn::Module {
  OddModel(const std::string& oddity, bool odd) {
    const bool shape = odd && oddity == "shape";
    const bool dtype = odd && oddity == "dtype";
    register_parameter("first", torch::zeros({4}));
    register_parameter("second", torch::zeros({shape ? 5 : 3}, dtype ? torch::kDouble : torch::kFloat));
    if (!odd || oddity != "missing") register_parameter("third", torch::zeros({2}));
  }
};

using StepHook = std::function<void(int step, const at::Tensor& output)>;

/// `hook` is called on every rank between forward and backward.
void train_steps(Accelerator& accelerator, int steps, const StepHook& hook) {
  torch::manual_seed(1 + accelerator.process_index());
  torch::nn::Linear model(4, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  auto [ddp, opt] = accelerator.prepare(model, optimizer);
  for (int step = 0; step < steps; ++step) {
    const at::Tensor output = ddp(torch::rand({8, 4}).to(accelerator.device()));
    hook(step, output);
    accelerator.backward(output.square().mean());
    opt.step();
    opt.zero_grad();
  }
  const at::Tensor weights = accelerator.gather(model->weight);
  for (int rank = 1; rank < accelerator.num_processes(); ++rank) {
    if (!at::equal(weights[rank], weights[0])) throw lockstep::Error("the weights differ after training");
  }
}

int killed_in_backward_of(Accelerator accelerator) {
  train_steps(accelerator, kEndless, [&](int step, const at::Tensor& output) {
    if (step != 3 || accelerator.process_index() != 1) return;
    output.register_hook([](const at::Tensor&) { std::raise(SIGKILL); });
  });
  return 0;
}

}  // namespace

int hello(const Words&) {
  const auto accelerator = join();
  accelerator.print("a world of ", accelerator.num_processes());
  accelerator.wait_for_everyone();
  return 0;
}

int join_within(const Words& words) {
  const auto accelerator = join(std::chrono::seconds(5), milliseconds(std::stoi(argument(words, 0))));
  accelerator.print("joined");
  accelerator.wait_for_everyone();
  return 0;
}

int killed_in_all_reduce(const Words&) {
  const auto accelerator = join();
  if (accelerator.process_index() == 1) die_after(milliseconds(200));
  all_reduce_on_and_on(accelerator);
  return 0;
}

/// Rank 2 arrives late, so that rank 1 is in the barrier when it dies.
int killed_in_barrier(const Words&) {
  const auto accelerator = join();
  if (accelerator.process_index() == 1) die_after(milliseconds(200));
  if (accelerator.process_index() == 2) std::this_thread::sleep_for(std::chrono::seconds(30));
  accelerator.wait_for_everyone();
  return 0;
}

int killed_in_backward(const Words&) { return killed_in_backward_of(join()); }

int killed_in_sharded_backward(const Words&) {
  constexpr milliseconds kTime = std::chrono::seconds(40);
  return killed_in_backward_of(Accelerator({.device = device().str(),
                                            .timeout = kTime,
                                            .join_timeout = kTime,
                                            .fsdp_plugin = lockstep::FullyShardedDataParallelPlugin{}}));
}

int throws(const Words&) {
  const auto accelerator = join();
  accelerator.wait_for_everyone();
  if (accelerator.process_index() == 1) throw std::runtime_error("sample 17 has no label");
  all_reduce_on_and_on(accelerator);
  return 0;
}

/// The rank that the argument names calls exit(0); the others wait for it.
int leaves_early(const Words& words) {
  const auto accelerator = join();
  if (std::to_string(accelerator.process_index()) == argument(words, 0)) std::exit(0);
  accelerator.wait_for_everyone();
  return 0;
}

int library_warning(const Words&) {
  const auto accelerator = join(std::chrono::seconds(2));
  LOG(WARNING) << "a warning of LibTorch's log";
  return 0;
}

int stops(const Words&) {
  const auto accelerator = join(std::chrono::seconds(1));
  if (accelerator.process_index() == 1) std::raise(SIGSTOP);
  accelerator.wait_for_everyone();
  return 0;
}

/// Rank 1 sleeps in forward of the step that the argument names; the others reach backward.
int hangs(const Words& words) {
  auto accelerator = join();
  const int deadly = std::stoi(argument(words, 0));
  train_steps(accelerator, kEndless, [&](int step, const at::Tensor&) {
    if (step != deadly || accelerator.process_index() != 1) return;
    std::cout << "rank 1 hangs" << std::endl;
    std::this_thread::sleep_for(std::chrono::minutes(2));
  });
  return 0;
}

/// Rank 1 exits successfully after three all-reduces; the others continue.
int leaves_in_collectives(const Words&) {
  const auto accelerator = join(std::chrono::seconds(5));
  const at::Tensor tensor = torch::ones({16}, accelerator.device());
  for (int i = 0; i < kEndless; ++i) {
    if (i == 3 && accelerator.process_index() == 1) _exit(0);
    accelerator.process_group().all_reduce(tensor);
  }
  return 0;
}

/// Rank 1 writes to address 0.
int crashes(const Words&) {
  const auto accelerator = join();
  accelerator.wait_for_everyone();
  volatile int* nowhere = nullptr;
  if (accelerator.process_index() == 1) *nowhere = 1;
  all_reduce_on_and_on(accelerator);
  return 0;
}

/// Fails before its first step.
int always_fails(const Words&) { throw lockstep::DataError("no such file"); }

int train(const Words&) {
  auto accelerator = join();
  train_steps(accelerator, 5, [](int, const at::Tensor&) {});
  accelerator.print("trained on ", accelerator.num_processes(), " ranks");
  accelerator.wait_for_everyone();
  return 0;
}

/// The last rank's model differs as the argument says.
int mismatch(const Words& words) {
  auto accelerator = join();
  auto ddp =
      accelerator.prepare(std::make_shared<OddModel>(argument(words, 0), accelerator.is_last_process()));
  return 0;
}

}  // namespace probe
