#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/parallel/activation_checkpoint.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {
namespace parallel {

/// Callbacks around the forward of a unit: fully_shard() gathers and frees weights in them.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void pre_forward() = 0;
  /// Dtypes to which floating-point tensors are converted, after pre_forward(): forward's arguments, and
  /// its outputs.
  virtual std::optional<at::ScalarType> input_dtype() const { return std::nullopt; }
  virtual std::optional<at::ScalarType> output_dtype() const { return std::nullopt; }
  /// `outputs`: the tensors in forward's result.
  virtual void post_forward(const std::vector<at::Tensor>& outputs) = 0;
  /// Called instead of post_forward() if forward threw.
  virtual void forward_failed() noexcept = 0;
};

/// Calls forward_failed() if forward throws.
struct ForwardGuard {
  UnitHooks* hooks;
  ~ForwardGuard() {
    if (hooks != nullptr) hooks->forward_failed();
  }
};

/// A tensor, or a vector, optional or map of tensors.
template <class Value>
constexpr bool holds_tensors_alone = std::is_same_v<Value, at::Tensor>;
template <class Value>
constexpr bool holds_tensors_alone<std::optional<Value>> = std::is_same_v<Value, at::Tensor>;
template <class Value>
constexpr bool holds_tensors_alone<std::vector<Value>> = std::is_same_v<Value, at::Tensor>;
template <class Value>
requires std::is_same_v<typename Value::mapped_type, at::Tensor>
constexpr bool holds_tensors_alone<Value> = true;

/// A copy of the argument with its floating-point tensors in this dtype; other values are passed through.
template <class Input>
decltype(auto) cast_input(Input&& input, at::ScalarType dtype) {
  using Value = std::remove_cvref_t<Input>;
  if constexpr (holds_tensors_alone<Value>) {
    Value cast = input;
    visit_tensors(cast, [&](at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor = tensor.to(dtype);
    });
    return cast;
  } else {
    return std::forward<Input>(input);
  }
}

/// Calls `run(inputs...)` between the hooks.
template <class Run, class... Inputs>
auto call_between(UnitHooks& hooks, const Run& run, Inputs&&... inputs) {
  hooks.pre_forward();
  ForwardGuard guard{&hooks};
  const auto dtype = hooks.input_dtype();
  auto output =
      dtype ? run(cast_input(std::forward<Inputs>(inputs), *dtype)...) : run(std::forward<Inputs>(inputs)...);
  if (const auto wanted = hooks.output_dtype()) {
    visit_tensors(output, [&](at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor = tensor.to(*wanted);
    });
  }
  guard.hooks = nullptr;
  std::vector<at::Tensor> tensors;
  visit_tensors(output, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
  hooks.post_forward(tensors);
  return output;
}

}  // namespace parallel

/// A block of a model whose forward can be wrapped from outside; C++ modules themselves have no forward
/// hooks. A block inherits from it and adds one line to its forward:
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
/// The layers of the language models of lockstep::models are units.
class Unit {
 public:
  /// On: forward keeps no activations of this block; backward recomputes them (lockstep::checkpoint). Errors
  /// call the block `name`. *Local*; between a backward and the next forward.
  void set_activation_checkpointing(bool on, std::string name = "a unit") {
    checkpoint_name_ = on ? std::optional(std::move(name)) : std::nullopt;
  }
  bool activation_checkpointing() const noexcept { return checkpoint_name_.has_value(); }

  /// Used by fully_shard(): sets the callbacks around forward. *Local*.
  void set_hooks(std::shared_ptr<parallel::UnitHooks> hooks) { hooks_ = std::move(hooks); }
  const std::shared_ptr<parallel::UnitHooks>& hooks() const noexcept { return hooks_; }

 protected:
  ~Unit() = default;

 private:
  template <class Block, class Body, class... Inputs>
  friend auto through(Block& unit, Body body, const Inputs&... inputs);
  template <class Block, class Body, class... Inputs>
  friend auto through_once(Block& unit, Body body, const Inputs&... inputs);

  std::optional<std::string> checkpoint_name_;
  std::shared_ptr<parallel::UnitHooks> hooks_;
};

/// Calls the member function `body` of `unit` if it must not run again in backward, for example because it
/// fills a key cache: it is never checkpointed. Every function of a unit that uses its parameters and is
/// called from outside must use this or through(). *Local*; *Collective* in a fully sharded model.
template <class Block, class Body, class... Inputs>
auto through_once(Block& unit, Body body, const Inputs&... inputs) {
  const auto run = [&](const auto&... values) { return std::invoke(body, unit, values...); };
  const auto& hooks = static_cast<Unit&>(unit).hooks_;
  return hooks ? parallel::call_between(*hooks, run, inputs...) : run(inputs...);
}

/// Calls the member function `body` of `unit` as its forward. The inputs must satisfy the requirements of
/// lockstep::checkpoint: no pointers to the stack of forward's caller. *Local*; *Collective* in a fully
/// sharded model.
template <class Block, class Body, class... Inputs>
auto through(Block& unit, Body body, const Inputs&... inputs) {
  const std::optional<std::string>& name = static_cast<Unit&>(unit).checkpoint_name_;
  if (!name) return through_once(unit, body, inputs...);
  const auto run = [&](const auto&... values) {
    return parallel::named_checkpoint(*name, std::bind_front(body, &unit), values...);
  };
  const auto& hooks = static_cast<Unit&>(unit).hooks_;
  return hooks ? parallel::call_between(*hooks, run, inputs...) : run(inputs...);
}

/// Makes a unit of a block of an existing class, with the same parameter names:
///
///     using Layer = lockstep::UnitOf<torch::nn::TransformerEncoderLayerImpl>;
///     layers.push_back(register_module("layer", std::make_shared<Layer>(options)));
///     states = layers.back()->forward(states);
///
/// `Block`: a `torch::nn` module class that is not final, not its holder. forward has the block's arguments
/// and result. It is a template, so `torch::nn::Sequential` cannot contain such a block. *Local*;
/// *Collective* in a fully sharded model.
template <class Block>
class UnitOf : public Block, public Unit {
 public:
  using Block::Block;

  template <class... Inputs>
  auto forward(const Inputs&... inputs) {
    return through(*this, &UnitOf::template body<Inputs...>, inputs...);
  }

 private:
  template <class... Inputs>
  auto body(const Inputs&... inputs) {
    return Block::forward(inputs...);
  }
};

/// Enables or disables activation checkpointing of all units of a model; transformers'
/// gradient_checkpointing_enable() and _disable(). Before or after wrapping for data parallelism. *Local*,
/// and ranks may differ. Throws UsageError if the model has no units.
template <class Model>
void set_activation_checkpointing(Model& model, bool on = true) {
  bool found = false;
  auto& module = parallel::module_of(model);
  // TorchScript modules have no units.
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
