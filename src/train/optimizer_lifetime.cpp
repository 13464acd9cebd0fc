#include "train/optimizer_lifetime.hpp"

#include <ATen/ops/zeros.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <utility>

#include "lockstep/optim/fused_optimizer.hpp"
#include "lockstep/optim/zero_redundancy_optimizer.hpp"

namespace lockstep::train {
namespace {

template <class State>
struct MarkedState final : State {
  std::shared_ptr<const void> mark;
};

at::Tensor nothing() { return at::zeros({0}); }

// Programs that visit all states find tensors there.
void fill(torch::optim::AdamParamState& state) { state.exp_avg(nothing()).exp_avg_sq(nothing()); }
void fill(torch::optim::AdamWParamState& state) { state.exp_avg(nothing()).exp_avg_sq(nothing()); }
void fill(torch::optim::SGDParamState& state) { state.momentum_buffer(nothing()); }
void fill(torch::optim::RMSpropParamState& state) { state.square_avg(nothing()); }
void fill(torch::optim::AdagradParamState& state) { state.sum(nothing()); }

template <class Optimizer, class State>
bool give_mark(torch::optim::Optimizer& optimizer, const std::shared_ptr<const void>& mark) {
  if (dynamic_cast<Optimizer*>(&optimizer) == nullptr) return false;
  auto entry = std::make_unique<MarkedState<State>>();
  fill(*entry);
  entry->mark = mark;
  optimizer.state()[const_cast<void*>(mark.get())] = std::move(entry);
  return true;
}

}  // namespace

std::weak_ptr<const void> watch(torch::optim::Optimizer& optimizer, const std::shared_ptr<const void>& mark) {
  using namespace torch::optim;
  if (const auto* fused = dynamic_cast<optim::FusedOptimizer*>(&optimizer)) return fused->lifetime().watch();
  if (const auto* zero = dynamic_cast<optim::ZeroRedundancyOptimizer*>(&optimizer))
    return zero->lifetime().watch();
  give_mark<Adam, AdamParamState>(optimizer, mark) || give_mark<AdamW, AdamWParamState>(optimizer, mark) ||
      give_mark<SGD, SGDParamState>(optimizer, mark) ||
      give_mark<RMSprop, RMSpropParamState>(optimizer, mark) ||
      give_mark<Adagrad, AdagradParamState>(optimizer, mark);
  return mark;
}

}  // namespace lockstep::train
