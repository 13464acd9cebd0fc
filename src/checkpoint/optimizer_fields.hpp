#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <typeinfo>

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/sgd.hpp"

namespace lockstep::optimizer_fields {

// The fields of LibTorch's and Lockstep's optimizers, with torch.optim's names: one table for writing,
// checking and reading. visit_options(options, f) calls f(name, field&) for each option: a number, a bool or
// a tuple. visit_state(state, f) does so for the state of a parameter: an std::int64_t or a tensor, which is
// undefined if the options do not need it. For an option that LibTorch's class lacks, a third argument is its
// value in files without it, so that either class reads the other's files.

/// The fields that Adam and AdamW share.
struct AdamFields {
  static void visit_options(auto& options, const auto& visit) {
    visit("lr", options.lr());
    visit("betas", options.betas());
    visit("eps", options.eps());
    visit("weight_decay", options.weight_decay());
    visit("amsgrad", options.amsgrad());
  }
  static void visit_state(auto& state, const auto& visit) {
    visit("step", state.step());
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
};

struct Adam : AdamFields {
  static constexpr const char* kName = "Adam";
  using Optimizer = torch::optim::Adam;
  using Options = torch::optim::AdamOptions;
  using State = torch::optim::AdamParamState;
};

struct AdamW : AdamFields {
  static constexpr const char* kName = "AdamW";
  using Optimizer = torch::optim::AdamW;
  using Options = torch::optim::AdamWOptions;
  using State = torch::optim::AdamWParamState;
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

/// One of Lockstep's optimizers: the name and state of LibTorch's, and a plain struct of options.
template <class Class, class Fields, class Libtorch>
struct Fused : Libtorch {
  using Optimizer = Class;
  using Options = optim::GroupOptions<Fields>;
  static void visit_options(auto& options, const auto& visit) {
    auto& values = options.values;
    visit("lr", values.lr);
    visit("weight_decay", values.weight_decay);
    visit("maximize", values.maximize, false);
    if constexpr (std::is_same_v<Fields, optim::SgdOptions>) {
      visit("momentum", values.momentum);
      visit("dampening", values.dampening);
      visit("nesterov", values.nesterov);
    } else {
      visit("betas", values.betas);
      visit("eps", values.eps);
      visit("amsgrad", values.amsgrad);
    }
  }
};
struct FusedAdamW : Fused<optim::AdamW, optim::AdamWOptions, AdamW> {
  using State = torch::optim::AdamParamState;
};
using FusedAdam = Fused<optim::Adam, optim::AdamOptions, Adam>;
using FusedSgd = Fused<optim::SGD, optim::SgdOptions, Sgd>;

/// Calls `action(Kind{})` for the optimizer's kind; false if it is none of these, or derived from one.
template <class Action>
bool with_kind(const torch::optim::Optimizer& optimizer, const Action& action) {
  const auto try_kind = [&](auto kind) {
    if (typeid(optimizer) != typeid(typename decltype(kind)::Optimizer)) return false;
    action(kind);
    return true;
  };
  return try_kind(FusedAdamW{}) || try_kind(FusedAdam{}) || try_kind(FusedSgd{}) || try_kind(AdamW{}) ||
         try_kind(Adam{}) || try_kind(Sgd{}) || try_kind(RmsProp{}) || try_kind(Adagrad{});
}

}  // namespace lockstep::optimizer_fields
