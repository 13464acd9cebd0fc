#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

class Accelerator;

struct GraphedStepOptions {
  /// Steps that run as usual before one is recorded: they make the gradients' and the optimizer's memory, and
  /// cuDNN and cuBLAS select their algorithms. PyTorch asks for 11 with DistributedDataParallel.
  int warmup_steps = 11;

  /// The most shapes of inputs that are recorded. Steps with inputs of further shapes run as usual.
  int max_shapes = 8;
};

/// Makes a stream that is not the default one current in this thread while the result lives; on a CPU it does
/// nothing. *Local*. Throws UsageError if there is no such device.
c10::OptionalStreamGuard graph_stream(const at::Device& device);

/// A training step that the host launches as a whole: after a few usual steps one is recorded as a CUDA graph
/// (torch.cuda.CUDAGraph), which is replayed from then on. Small models gain, whose steps take less time on
/// the device than the host needs to launch them. On a CPU each step runs as usual.
///
///     const auto stream = graph_stream(accelerator.device());  // before the models are made
///     optim::AdamW adam(net->parameters(), {.lr = 1e-3});
///     auto [model, optimizer] = accelerator.prepare(net, adam);
///     GraphedStep step([&](const std::vector<at::Tensor>& inputs) {
///       const at::Tensor loss = mse_loss(model(inputs[0]), inputs[1]);
///       optimizer.zero_grad();
///       accelerator.backward(loss);
///       optimizer.step();
///       return std::vector{loss};
///     });
///     for (auto& batch : loader) {
///       loss = step({batch["input"], batch["label"]})[0];
///       scheduler.step();
///     }
///
/// A replay repeats the kernels of the recorded step, on new inputs. So the step
/// - does the same at each call with inputs of the same shapes: branches, and anything else on the host, are
///   those of the recorded call;
/// - never waits for the device: no `item()`, no copy to the CPU, no loss scaling of fp16 (use bf16);
/// - is whole: gradients are not accumulated over several calls;
/// - uses optimizers of lockstep::optim, whose learning rates and step counts are current in each replay; a
///   prepared optimizer of LibTorch is an error.
/// One graph is recorded for each combination of shapes, all in the same memory, and anew after their state
/// was loaded or the optimizer's other options have changed. Dropout draws new numbers in each replay.
/// Communication uses NCCL; all ranks call the step equally often.
///
/// With an Accelerator, a call may be a micro-batch of an accumulation window. Each kind of micro-batch (the
/// first, a later one, the last) is recorded as a graph of its own:
///
///     GraphedStep step(accelerator, [&](const std::vector<at::Tensor>& inputs) {
///       const at::Tensor loss = mse_loss(model(inputs[0]), inputs[1]);
///       accelerator.backward(loss);
///       if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model, 1.0);
///       optimizer.step();
///       optimizer.zero_grad();
///       return std::vector{loss};
///     });
///     for (auto& batch : loader) {
///       const auto window = accelerator.accumulate();
///       loss = step({batch["input"], batch["label"]})[0];
///       scheduler.step();
///     }
///
/// Only the prepared optimizer clears gradients then. They stay in their memory, filled with zeros, so that a
/// parameter that a window does not use is stepped with a gradient of zero. Trainer can record its steps by
/// itself: see TrainingArguments::cuda_graphs. One thread at a time.
class GraphedStep {
 public:
  using Tensors = std::vector<at::Tensor>;
  /// The step's inputs, all on one device, to its results.
  using Function = std::function<Tensors(const Tensors&)>;

  explicit GraphedStep(Function step, const GraphedStepOptions& options = {});
  /// For micro-batches of the accelerator's windows, between accumulate() and its end.
  GraphedStep(const Accelerator& accelerator, Function step, const GraphedStepOptions& options = {});
  GraphedStep(GraphedStep&&) noexcept;
  GraphedStep& operator=(GraphedStep&&) noexcept;
  ~GraphedStep();

  /// One step. The results have no gradients, and those of a replay are overwritten by the next one. Throws
  /// what the function throws, and UsageError for a step that cannot be recorded, for inputs on another
  /// device than those of the first step, and on the default stream. *Collective* if the step is.
  Tensors operator()(const Tensors& inputs);

  /// Whether the last step was a replay, the first one after its recording included.
  bool is_recorded() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
