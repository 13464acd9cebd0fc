#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lockstep {
namespace parallel {

/// One checkpointed call: what its forward saved for backward, and how to compute it again.
class CheckpointFrame;

/// True where a call now would be checkpointed: gradients are recorded, and no other checkpoint on this
/// thread runs its function. *Local*.
bool may_checkpoint();

/// While it lives, what autograd saves on this thread is dropped, and computed again by `recompute` when
/// backward first asks for it. `name` is for errors. One at a time on a thread. *Local*. Throws UsageError
/// inside a backward, and where another library than LibTorch runs the backward.
class CheckpointScope {
 public:
  CheckpointScope(std::string name, std::function<void()> recompute);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  std::shared_ptr<CheckpointFrame> frame_;
};

/// As lockstep::checkpoint; `name` stands in errors for the function.
template <class Function, class... Inputs>
auto named_checkpoint(const std::string& name, Function&& function, Inputs&&... inputs) {
  auto call = [function = std::decay_t<Function>(std::forward<Function>(function)),
               inputs = std::tuple<std::decay_t<Inputs>...>(std::forward<Inputs>(inputs)...)]() mutable {
    return std::apply(function, std::as_const(inputs));
  };
  if (!may_checkpoint()) return call();
  const CheckpointScope scope(name, [call]() mutable { call(); });
  return call();
}

}  // namespace parallel

/// Activation checkpointing, as torch.utils.checkpoint with use_reentrant=False: returns
/// `function(inputs...)` and keeps none of its intermediate results; backward computes them again. Costs one
/// more forward of `function`, saves its activations, and has the same bits: random numbers (the CPU's, and
/// those of the CUDA device that is current now) and autocast are as in the first forward.
///
///     at::Tensor states = lockstep::checkpoint([this](const at::Tensor& x) { return block_(x); }, input);
///
/// The function and copies of the inputs live as long as the graph; what the function captures by reference,
/// and the modules behind pointers, must live until backward has ended. Inputs arrive as const; tensors,
/// numbers and structures of them all serve, and tensors that the function captures get gradients too. The
/// function must compute the same both times and leave its inputs as they are. What it changes outside
/// changes twice: the running statistics of a batch norm, a counter.
///
/// A checkpoint inside another is part of the outer one. DistributedDataParallel sees each parameter's
/// gradient once: neither static_graph nor anything else is needed. retain_graph, autograd::grad and double
/// backward work; each backward computes again.
///
/// *Local*; any thread. Throws UsageError inside a backward, and for a backward inside `function`. Backward
/// throws Error where the function saves other tensors than in the first forward (their number, shapes and
/// types are compared), or where a parameter was changed in between. Without gradients (at::NoGradGuard) it
/// just calls.
template <class Function, class... Inputs>
auto checkpoint(Function&& function, Inputs&&... inputs) {
  return parallel::named_checkpoint("the checkpointed function", std::forward<Function>(function),
                                    std::forward<Inputs>(inputs)...);
}

}  // namespace lockstep
