#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

namespace lockstep::optimizer_fields {

// The fields of LibTorch's optimizers under torch.optim's names: one table for writing, checking and reading.
// visit_options(options, f) calls f(name, field&) for each option, a number, a bool or a
// tuple; visit_state(state, f) for what is kept for
// each parameter: an std::int64_t or a tensor, which is undefined where the options need none.

template <class Options, class Visit>
void visit_adam_options(Options& options, const Visit& visit) {
  visit("lr", options.lr());
  visit("betas", options.betas());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("amsgrad", options.amsgrad());
}

template <class State, class Visit>
void visit_adam_state(State& state, const Visit& visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

struct Adam {
  static constexpr const char* kName = "Adam";
  using Optimizer = torch::optim::Adam;
  using Options = torch::optim::AdamOptions;
  using State = torch::optim::AdamParamState;
  static void visit_options(auto& options, const auto& visit) { visit_adam_options(options, visit); }
  static void visit_state(auto& state, const auto& visit) { visit_adam_state(state, visit); }
};

struct AdamW {
  static constexpr const char* kName = "AdamW";
  using Optimizer = torch::optim::AdamW;
  using Options = torch::optim::AdamWOptions;
  using State = torch::optim::AdamWParamState;
  static void visit_options(auto& options, const auto& visit) { visit_adam_options(options, visit); }
  static void visit_state(auto& state, const auto& visit) { visit_adam_state(state, visit); }
};

struct Sgd {
  static constexpr const char* kName = "SGD";
  using Optimizer = torch::optim::SGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static void visit_options(auto& options, const auto& visit) {
    visit("lr", options.lr());
    visit("momentum", options.momentum());
    visit("dampening", options.dampening());
    visit("weight_decay", options.weight_decay());
    visit("nesterov", options.nesterov());
  }
  static void visit_state(auto& state, const auto& visit) {
    visit("momentum_buffer", state.momentum_buffer());
  }
};

struct RmsProp {
  static constexpr const char* kName = "RMSprop";
  using Optimizer = torch::optim::RMSprop;
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static void visit_options(auto& options, const auto& visit) {
    visit("lr", options.lr());
    visit("alpha", options.alpha());
    visit("eps", options.eps());
    visit("weight_decay", options.weight_decay());
    visit("momentum", options.momentum());
    visit("centered", options.centered());
  }
  static void visit_state(auto& state, const auto& visit) {
    visit("step", state.step());
    visit("square_avg", state.square_avg());
    visit("momentum_buffer", state.momentum_buffer());
    visit("grad_avg", state.grad_avg());
  }
};

struct Adagrad {
  static constexpr const char* kName = "Adagrad";
  using Optimizer = torch::optim::Adagrad;
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static void visit_options(auto& options, const auto& visit) {
    visit("lr", options.lr());
    visit("lr_decay", options.lr_decay());
    visit("weight_decay", options.weight_decay());
    visit("initial_accumulator_value", options.initial_accumulator_value());
    visit("eps", options.eps());
  }
  static void visit_state(auto& state, const auto& visit) {
    visit("step", state.step());
    visit("sum", state.sum());
  }
};

/// Calls `action(Kind{})` for the optimizer's kind; false when it is none of these, or derived from one.
template <class Action>
bool with_kind(const torch::optim::Optimizer& optimizer, const Action& action) {
  const auto try_kind = [&](auto kind) {
    if (typeid(optimizer) != typeid(typename decltype(kind)::Optimizer)) return false;
    action(kind);
    return true;
  };
  return try_kind(AdamW{}) || try_kind(Adam{}) || try_kind(Sgd{}) || try_kind(RmsProp{}) ||
         try_kind(Adagrad{});
}

}  // namespace lockstep::optimizer_fields
