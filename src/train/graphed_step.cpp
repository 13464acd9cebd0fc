#include "lockstep/train/graphed_step.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "comm/cuda/plugin.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "train/graphs/step_graphs.hpp"
#include "train/training_scope.hpp"

namespace lockstep {
namespace {

using Tensors = GraphedStep::Tensors;
using train::kinds_of;

Tensors without_gradients(const Tensors& tensors) {
  Tensors results;
  for (const auto& tensor : tensors) results.push_back(tensor.detach());
  return results;
}

void check_options(const GraphedStepOptions& options) {
  if (options.warmup_steps < 1)
    throw UsageError(
        fmt::format("GraphedStep: warmup_steps must be at least 1, not {}", options.warmup_steps));
  if (options.max_shapes < 1)
    throw UsageError(fmt::format("GraphedStep: max_shapes must be at least 1, not {}", options.max_shapes));
}

}  // namespace

c10::OptionalStreamGuard graph_stream(const at::Device& device) {
  if (!device.is_cuda()) return c10::OptionalStreamGuard();
  comm::cuda_plugin();
  const c10::impl::VirtualGuardImpl streams(device.type());
  return c10::OptionalStreamGuard(streams.getStreamFromGlobalPool(
      device.has_index() ? device : streams.getDevice(), /*isHighPriority=*/true));
}

struct GraphedStep::Impl {
  /// What a recorded micro-batch has done to its window.
  struct Outcome {
    std::optional<bool> weighted;
    std::set<const torch::optim::Optimizer*> stepped;
  };

  Impl(Function the_step, const GraphedStepOptions& the_options)
      : step(std::move(the_step)), options(the_options) {
    check_options(options);
  }

  Function step;
  GraphedStepOptions options;
  /// For the micro-batches of an accelerator.
  std::unique_ptr<train::TrainingScope> scope;
  int ranks = 1;
  std::uint64_t loads = 0;
  std::optional<at::Device> device;
  std::optional<train::StepGraphs> graphs;
  std::map<std::string, Outcome> outcomes;

  train::AccumulationWindow& window() const { return scope->window(); }

  void begin(const at::Device& the_device, comm::GraphRecorder& recorder) {
    device = the_device;
    if (!recorder.can_record_here(*device)) {
      throw UsageError(
          "GraphedStep: the current stream is the default one, which CUDA cannot record. Keep the result of "
          "graph_stream() from before the model is made");
    }
    train::StepGraphsOptions how{.warmup_steps = options.warmup_steps,
                                 .shapes = static_cast<std::size_t>(options.max_shapes),
                                 .rehearse = false,
                                 .must_record = true,
                                 .who = "GraphedStep"};
    if (scope != nullptr) {
      how.host_state = [this] { return [this, memory = window().memory()] { window().set_memory(memory); }; };
    }
    graphs.emplace(*device, std::move(how));
  }

  void check_inputs(const Tensors& inputs) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].device() == *device) continue;
      throw UsageError(fmt::format("GraphedStep: input {} is on {}, but those of the first step are on {}", i,
                                   inputs[i].device().str(), device->str()));
    }
  }

  /// Gradients that several calls add up stay at one place, by which recordings find them.
  void keep_gradients() {
    if (window().steps() == 1 || window().keeps_gradients()) return;
    if (ranks > 1)
      throw UsageError("GraphedStep: windows of several micro-batches are recorded with one rank only");
    window().keep_gradients();
    window().keep_weight_in_place();
    Tensors parameters;
    for (const auto& model : window().models()) {
      for (const auto& entry : model.parameters()) parameters.push_back(entry.tensor);
    }
    graphs->set_parameters(std::move(parameters));
  }

  Tensors run(const Tensors& inputs) {
    check_inputs(inputs);
    if (scope == nullptr) return run_part("step", inputs, /*ends_step=*/true);
    if (std::exchange(loads, scope->loads()) != scope->loads()) graphs->forget();
    keep_gradients();
    const bool ends_step = window().syncs();
    const std::string part =
        fmt::format("micro-batch {} of {}{}", std::min<std::int64_t>(window().number(), 2), window().length(),
                    ends_step ? ", the last" : "");
    Tensors results = run_part(part, inputs, ends_step);
    if (!graphs->replayed()) return results;
    Outcome& outcome = outcomes[part + kinds_of(inputs)];
    if (graphs->called()) {
      outcome = {window().memory().weighted, window().stepped()};
      return results;
    }
    if (outcome.weighted) window().was_replayed(*outcome.weighted);
    for (const auto* const optimizer : outcome.stepped) window().was_stepped(*optimizer);
    return results;
  }

  Tensors run_part(const std::string& part, const Tensors& inputs, bool ends_step) {
    process_heartbeat().perhaps_waiting("graphed step");
    Tensors results = graphs->run(part, inputs, step, {});
    if (ends_step && !graphs->called()) process_heartbeat().finished_step();
    if (ends_step) graphs->end_step();
    return results;
  }
};

GraphedStep::GraphedStep(Function step, const GraphedStepOptions& options)
    : impl_(std::make_unique<Impl>(std::move(step), options)) {}

GraphedStep::GraphedStep(const Accelerator& accelerator, Function step, const GraphedStepOptions& options)
    : GraphedStep(std::move(step), options) {
  if (accelerator.options().gradient_accumulation.sync_each_batch)
    throw UsageError("GraphedStep: gradient_accumulation.sync_each_batch cannot be recorded: leave it off");
  impl_->scope = std::make_unique<train::TrainingScope>(accelerator);
  impl_->ranks = accelerator.num_processes();
  impl_->loads = impl_->scope->loads();
}

GraphedStep::GraphedStep(GraphedStep&&) noexcept = default;
GraphedStep& GraphedStep::operator=(GraphedStep&&) noexcept = default;
GraphedStep::~GraphedStep() = default;

Tensors GraphedStep::operator()(const Tensors& inputs) {
  if (inputs.empty()) throw UsageError("GraphedStep: a step needs an input");
  const at::Device device = inputs.front().device();
  if (!impl_->graphs) {
    comm::GraphRecorder* const recorder = comm::GraphRecorder::of(device);
    if (recorder == nullptr) return without_gradients(impl_->step(inputs));
    impl_->begin(device, *recorder);
  }
  return impl_->run(inputs);
}

bool GraphedStep::is_recorded() const noexcept { return impl_->graphs && impl_->graphs->replayed(); }

}  // namespace lockstep
