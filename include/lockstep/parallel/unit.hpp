#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/activation_checkpoint.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// A block of a model whose forward can be wrapped from outside, which C++ modules cannot by themselves: they
/// have no forward hooks. A block inherits from it and says so in one line of its forward:
///
///     class BlockImpl : public torch::nn::Module, public lockstep::Unit {
///      public:
///       at::Tensor forward(const at::Tensor& states, const at::Tensor& mask) {
///         return lockstep::through(*this, &BlockImpl::body, states, mask);
///       }
///      private:
///       at::Tensor body(const at::Tensor& states, const at::Tensor& mask);  // what forward was before
///     };
///
/// The layers of Gpt2LMHeadModel, BertModel and BartForConditionalGeneration are units.
class Unit {
 public:
  /// On: forward keeps no activations of this block; backward computes them again (lockstep::checkpoint).
  /// `name` stands in errors. *Local*; between a backward and the next forward.
  void set_activation_checkpointing(bool on, std::string name = "a unit") {
    checkpoint_name_ = on ? std::optional(std::move(name)) : std::nullopt;
  }
  bool activation_checkpointing() const noexcept { return checkpoint_name_.has_value(); }

 protected:
  ~Unit() = default;

 private:
  template <class Block, class Body, class... Inputs>
  friend auto through(Block& unit, Body body, const Inputs&... inputs);

  std::optional<std::string> checkpoint_name_;
};

/// Calls the member function `body` of `unit` as its forward. What lockstep::checkpoint asks of inputs holds
/// for these: no pointers to what forward's caller has on its stack. *Local*.
template <class Block, class Body, class... Inputs>
auto through(Block& unit, Body body, const Inputs&... inputs) {
  const std::optional<std::string>& name = static_cast<Unit&>(unit).checkpoint_name_;
  if (!name) return std::invoke(body, unit, inputs...);
  return parallel::named_checkpoint(*name, std::bind_front(body, &unit), inputs...);
}

/// Switches activation checkpointing of all units in a model on or off; transformers'
/// gradient_checkpointing_enable() and _disable(). Before or after wrapping for data parallelism. *Local*,
/// and ranks may differ. Throws UsageError for a model without units.
template <class Model>
void set_activation_checkpointing(Model& model, bool on = true) {
  bool found = false;
  auto& module = parallel::module_of(model);
  // TorchScript's modules have no units.
  if constexpr (requires { module.named_modules().begin()->value().get(); }) {
    for (const auto& entry : module.named_modules()) {
      auto* const unit = dynamic_cast<Unit*>(entry.value().get());
      if (unit == nullptr) continue;
      unit->set_activation_checkpointing(on, "'" + entry.key() + "'");
      found = true;
    }
  }
  if (found) return;
  throw UsageError(
      "set_activation_checkpointing: the model has no units. Let its blocks inherit lockstep::Unit and call "
      "lockstep::through in their forward, or call lockstep::checkpoint around them");
}

}  // namespace lockstep
