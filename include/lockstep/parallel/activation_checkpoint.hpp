#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace lockstep {
namespace parallel {

/// One checkpointed call: what its forward saved for backward, and how to recompute it.
class CheckpointFrame;

/// Whether a call would now be checkpointed: gradients are recorded, and no other checkpoint is running its
/// function on this thread. *Local*.
bool may_checkpoint();

/// While it exists, tensors that autograd saves on this thread are dropped, and `recompute` computes them
/// again when backward first needs them. `name` is used in errors. One at a time per thread. *Local*. Throws
/// UsageError inside a backward, and if another library than LibTorch runs the backward.
class CheckpointScope {
 public:
  CheckpointScope(std::string name, std::function<void()> recompute);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  std::shared_ptr<CheckpointFrame> frame_;
};

/// As lockstep::checkpoint; errors call the function `name`.
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
/// dtypes are compared), or if a parameter was changed in between. Without gradients (at::NoGradGuard) it
/// only calls the function.
template <class Function, class... Inputs>
auto checkpoint(Function&& function, Inputs&&... inputs) {
  return parallel::named_checkpoint("the checkpointed function", std::forward<Function>(function),
                                    std::forward<Inputs>(inputs)...);
}

}  // namespace lockstep
