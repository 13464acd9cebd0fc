#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {
namespace parallel {

/// One checkpointed call: what its forward saved for backward, and how to recompute it.
class CheckpointFrame;

/// Whether a call would now be checkpointed: gradients are recorded, and no other checkpoint is running its
/// function on this thread. *Local*.
bool may_checkpoint();

/// While it exists, tensors that autograd saves on this thread are dropped, and `recompute` computes them
/// again when backward first needs them, from `inputs`, which must be unchanged then. `name` is used in
/// errors. One at a time per thread. *Local*. Throws UsageError inside a backward, and if another library
/// than LibTorch runs the backward.
class CheckpointScope {
 public:
  CheckpointScope(std::string name, std::function<void()> recompute,
                  const std::vector<at::Tensor>& inputs = {});
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  std::shared_ptr<CheckpointFrame> frame_;
};

/// Appends the tensors in an input, if it is of a kind that visit_tensors() knows.
template <class Input>
void append_tensors(const Input& input, std::vector<at::Tensor>& tensors) {
  if constexpr (std::is_same_v<Input, at::Tensor>) {
    if (input.defined()) tensors.push_back(input);
  } else if constexpr (requires(Input & copy) { visit_tensors_of(copy, [](at::Tensor&) {}); }) {
    Input copy = input;
    visit_tensors_of(copy, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
  } else if constexpr (holds_no_tensor<Input>) {
    return;
  } else if constexpr (requires {
                         input.has_value();
                         *input;
                       }) {
    if (input.has_value()) append_tensors(*input, tensors);
  } else if constexpr (requires { std::tuple_size<Input>::value; }) {
    std::apply([&](const auto&... elements) { (append_tensors(elements, tensors), ...); }, input);
  } else if constexpr (requires { input.begin()->second; }) {
    for (const auto& entry : input) append_tensors(entry.second, tensors);
  } else if constexpr (requires {
                         input.begin();
                         input.end();
                       }) {
    for (const auto& element : input) append_tensors(element, tensors);
  }
}

/// As lockstep::checkpoint; errors call the function `name`.
template <class Function, class... Inputs>
auto named_checkpoint(const std::string& name, Function&& function, Inputs&&... inputs) {
  std::vector<at::Tensor> tensors;
  if (may_checkpoint()) (append_tensors(std::as_const(inputs), tensors), ...);
  auto call = [function = std::decay_t<Function>(std::forward<Function>(function)),
               inputs = std::tuple<std::decay_t<Inputs>...>(std::forward<Inputs>(inputs)...)]() mutable {
    return std::apply(function, std::as_const(inputs));
  };
  if (!may_checkpoint()) return call();
  const CheckpointScope scope(
      name, [call]() mutable { call(); }, tensors);
  return call();
}

}  // namespace parallel

/// Activation checkpointing, as torch.utils.checkpoint with use_reentrant=False: returns
/// `function(inputs...)` and keeps none of its intermediate results; backward recomputes them. Costs one more
/// forward of `function`, saves the memory of its activations, and gives the same bits: random numbers (of
/// the CPU and of the current CUDA device) and autocast are as in the first forward.
///
///     at::Tensor states = lockstep::checkpoint([this](const at::Tensor& x) { return block_(x); }, input);
///
/// The graph keeps the function and copies of the inputs; what the function captures by reference, and the
/// modules behind pointers, must outlive backward. Inputs are passed as const; they may be tensors, numbers
/// and structures of these. Captured tensors get gradients too. The function must compute the same both times
/// and must not modify its inputs. Side effects happen twice: the running statistics of a batch norm, a
/// counter.
///
/// A checkpoint inside another is part of the outer one. DistributedDataParallel sees each parameter's
/// gradient once: neither static_graph nor anything else is needed. retain_graph, autograd::grad and double
/// backward work; each backward recomputes.
///
/// *Local*; any thread. Throws UsageError inside a backward, and for a backward inside `function`. Backward
/// throws Error if the function saves other tensors than in the first forward (their number, shapes and
/// dtypes are compared), or if an input, a captured tensor that autograd saves or a parameter was changed in
/// place in between. Without gradients (at::NoGradGuard) it
/// only calls the function.
template <class Function, class... Inputs>
auto checkpoint(Function&& function, Inputs&&... inputs) {
  return parallel::named_checkpoint("the checkpointed function", std::forward<Function>(function),
                                    std::forward<Inputs>(inputs)...);
}

}  // namespace lockstep
