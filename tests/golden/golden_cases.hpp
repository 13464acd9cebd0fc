#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <map>
#include <string>

#include "lockstep/parallel/distributed_data_parallel.hpp"

namespace lockstep::golden {

/// `heads` exists as TorchScript only.
enum class Net { mlp, cnn, batch_norm, heads };

/// `mse`: inputs and targets on a coarse grid; `cross_entropy`: normal inputs; `whole`: whole numbers only.
enum class Task { mse, cross_entropy, whole };

/// What is trained, on what, and how. golden_cases.py says the same in Python.
struct Case {
  Net net = Net::mlp;
  Task task = Task::mse;
  double momentum = 0.0;
  double learning_rate = 0.1;
  int steps = 10;
  int micro_batches = 1;
  /// All ranks together make one batch of 32 rows; else each has 8 rows of its own.
  bool split = false;
  /// The net comes out of a TorchScript file that Python wrote.
  bool scripted = false;
  /// TorchScript runs the graph as it is written. Otherwise its first runs profile it, and after them one
  /// node of autograd stands for the whole net, so that no parameter is unused any more.
  bool interpreted = false;
  DistributedDataParallelOptions ddp = {};
};

const std::map<std::string, Case>& cases();

/// The net of a case that is not scripted, seeded as in Python.
torch::nn::Sequential make_net(const Case& golden_case);

struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// The rows of one rank, from a generator that both languages have.
Batch batch_of(const Case& golden_case, int step, int rank, int world);

at::Tensor loss_of(const Case& golden_case, const at::Tensor& outputs, const at::Tensor& targets);

}  // namespace lockstep::golden
