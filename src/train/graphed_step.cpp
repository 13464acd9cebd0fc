#include "lockstep/train/graphed_step.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "comm/cuda/graph_replays.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {
namespace {

using Tensors = GraphedStep::Tensors;

Tensors detached(const Tensors& tensors) {
  Tensors results;
  for (const auto& tensor : tensors) results.push_back(tensor.detach());
  return results;
}

/// "Long [8, 32] on cuda:0".
std::string kind_of(const at::Tensor& tensor) {
  return fmt::format("{} [{}] on {}", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                     tensor.device().str());
}

bool is_like(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
         one.device() == other.device();
}

void check_like_first(const Tensors& inputs, const Tensors& first) {
  if (inputs.size() != first.size()) {
    throw UsageError(
        fmt::format("GraphedStep: {} inputs, but {} in the first step", inputs.size(), first.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_like(inputs[i], first[i])) continue;
    throw UsageError(fmt::format(
        "GraphedStep: input {} is {}, but {} in the first step, and a recorded step cannot change. "
        "Drop the last, incomplete batch (drop_last), or pad it",
        i, kind_of(inputs[i]), kind_of(first[i])));
  }
}

void check_stream(const at::Device& device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  if (streams.getStream(device) != streams.getDefaultStream(device)) return;
  throw UsageError(
      "GraphedStep: the current stream is the default one, which CUDA cannot record. Keep the result of "
      "graph_stream() from before the model is made");
}

}  // namespace

c10::OptionalStreamGuard graph_stream(const at::Device& device) {
  if (!device.is_cuda()) return c10::OptionalStreamGuard();
  comm::cuda_plugin();
  const c10::impl::VirtualGuardImpl streams(device.type());
  return c10::OptionalStreamGuard(
      streams.getStreamFromGlobalPool(device.has_index() ? device : streams.getDevice()));
}

struct GraphedStep::Impl {
  /// A recorded step.
  struct Recording {
    explicit Recording(const at::Device& device) : replays(device) {}

    Tensors results;
    comm::GraphReplays replays;
    /// Destroyed first: it uses the memory of the others.
    std::unique_ptr<comm::CudaGraph> graph = comm::cuda_plugin().make_graph();
  };

  Function step;
  int warmup_steps_left;
  /// The memory that all steps read.
  Tensors inputs = {};
  std::unique_ptr<Recording> recording = {};

  void take(const Tensors& given) {
    if (inputs.empty()) {
      check_stream(given.front().device());
      for (const auto& input : given) inputs.push_back(input.clone());
      return;
    }
    check_like_first(given, inputs);
    for (std::size_t i = 0; i < given.size(); ++i) inputs[i].copy_(given[i], /*non_blocking=*/true);
  }

  void record() {
    auto made = std::make_unique<Recording>(inputs.front().device());
    try {
      made->replays.record(*made->graph, [&] { made->results = detached(step(inputs)); });
    } catch (const c10::Error& error) {
      throw UsageError(
          fmt::format("GraphedStep: this step cannot be recorded as a CUDA graph. It must not wait for the "
                      "device, as item(), printing a tensor and copying it to the CPU do. CUDA says: {}",
                      error.what_without_backtrace()));
    }
    recording = std::move(made);
  }

  void replay() {
    process_heartbeat().perhaps_waiting("graphed step");
    recording->replays.run();
    recording->graph->replay();
    process_heartbeat().finished_step();
  }
};

GraphedStep::GraphedStep(Function step, const GraphedStepOptions& options)
    : impl_(std::make_unique<Impl>(Impl{std::move(step), options.warmup_steps})) {
  if (options.warmup_steps < 1)
    throw UsageError(
        fmt::format("GraphedStep: warmup_steps must be at least 1, not {}", options.warmup_steps));
}

GraphedStep::GraphedStep(GraphedStep&&) noexcept = default;
GraphedStep& GraphedStep::operator=(GraphedStep&&) noexcept = default;
GraphedStep::~GraphedStep() = default;

Tensors GraphedStep::operator()(const Tensors& inputs) {
  if (inputs.empty()) throw UsageError("GraphedStep: a step needs an input");
  if (!inputs.front().is_cuda()) return detached(impl_->step(inputs));
  impl_->take(inputs);
  if (impl_->warmup_steps_left > 0) {
    --impl_->warmup_steps_left;
    return detached(impl_->step(impl_->inputs));
  }
  if (!is_recorded()) impl_->record();
  impl_->replay();
  return impl_->recording->results;
}

bool GraphedStep::is_recorded() const noexcept { return impl_->recording != nullptr; }

}  // namespace lockstep
