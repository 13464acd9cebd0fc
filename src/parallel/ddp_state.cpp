#include "parallel/ddp_state.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "comm/c10d_handles.hpp"
#include "comm/cuda/graph_recorder.hpp"
#include "comm/errors.hpp"
#include "comm/transport/shared_allocation.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kBroadcastBucketBytes = 250U * 1024 * 1024;  // As in PyTorch's DDP.

c10::intrusive_ptr<c10d::ProcessGroup> c10d_group(const ProcessGroup& group) {
  return comm::to_intrusive(group.c10d_process_group());
}

/// Whether the running backward adds to the gradients of all leaves, unlike autograd::grad().
bool is_whole_backward() {
  const auto* const selected = torch::autograd::get_current_graph_task_exec_info();
  return selected == nullptr || selected->empty();
}

/// On a GPU, compute times include waiting for other ranks, so that all ranks seem equally fast.
StragglerOptions straggler_options(const DdpState& state) {
  StragglerOptions options = state.options.stragglers;
  if (!state.parameters.empty() && state.parameters.front().tensor.is_cuda()) options.every = 0;
  return options;
}

}  // namespace

std::string describe(const ProcessGroup& group) {
  return fmt::format("rank {} of {}: DistributedDataParallel", group.rank(), group.size());
}

DdpState::DdpState(const std::vector<NamedTensor>& all_parameters,
                   std::vector<NamedTensor> trained_parameters, const ProcessGroup& ddp_group,
                   const DistributedDataParallelOptions& ddp_options)
    : parameters(std::move(trained_parameters)),
      module_parameters(all_parameters),
      parameter_watch(all_parameters, parameters),
      group(ddp_group),
      who(std::make_shared<const std::string>(describe(group))),
      options(ddp_options),
      mean(std::make_shared<parallel::PlainMean>(ddp_group.size())),
      watch(ddp_group, straggler_options(*this)) {}

void DdpState::install_reducer(BucketLayout buckets) {
  // The previous one must unregister its hooks first.
  logger.reset();
  reducer.reset();
  delayed_reduce_is_queued = false;
  reducer = parallel::make_reducer(parameters, std::move(buckets), group, options);
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  if (options.static_graph) reducer->set_static_graph();
  if (applies_in_backward) reducer->set_optimizer_in_backward();
  if (hook_runner == nullptr) return;
  hook_runner->hook().buckets_changed();
  reducer->register_comm_hook(parallel::as_reducer_hook(hook_runner));
}

parallel::CommHookRunner& DdpState::require_hook_runner() {
  if (hook_runner == nullptr) {
    hook_runner = std::make_shared<parallel::CommHookRunner>(group, mean, parameters);
    reducer->register_comm_hook(parallel::as_reducer_hook(hook_runner));
  }
  return *hook_runner;
}

void DdpState::rebuild_buckets() {
  const comm::SharedAllocation buckets_are_shared(group);
  if (reducer->rebuild_buckets() && hook_runner != nullptr) hook_runner->hook().buckets_changed();
}

void DdpState::backward_begins() {
  reducer->buckets_begin();
  if (hook_runner != nullptr) hook_runner->backward_begins();
}

void DdpState::forget_failed_recording() {
  if (!backward_runs || !backward_is_recorded || torch::autograd::get_current_graph_task_id() != -1) return;
  backward_runs = false;
  reducer->forget_backward();
}

void DdpState::broadcast(const std::vector<NamedTensor>& named, int root) {
  if (named.empty()) return;
  const at::NoGradGuard no_grad;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<at::Tensor> values;
  for (const auto& entry : named) {
    parallel::separate_elements(entry.tensor);
    values.push_back(entry.tensor.detach());
  }
  comm::translated(
      [&] { c10d::broadcast_coalesced(c10d_group(group), values, kBroadcastBucketBytes, root); },
      [&] { return fmt::format("{}: copying the values of rank {} failed", describe(group), root); });
  if (root != group.rank()) watch.waited(std::chrono::steady_clock::now() - begin);
}

std::vector<std::weak_ptr<DdpForward>>& DdpState::waiting_forwards() {
  std::erase_if(forwards_, [](const auto& kept) {
    const auto held = kept.lock();
    return held == nullptr || held->had_backward;
  });
  return forwards_;
}

void DdpState::broadcast_buffers(const std::vector<NamedTensor>& named, int root) {
  if (waiting_forwards().empty()) {
    broadcast(named, root);
  } else {
    std::vector<NamedTensor> received;
    for (const auto& entry : named) received.push_back({entry.name, entry.tensor.detach().clone()});
    broadcast(received, root);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < named.size(); ++i) {
      const at::Tensor& buffer = named[i].tensor;
      if (at::equal(buffer, received[i].tensor)) continue;
      const SentBuffer present{buffer.unsafeGetTensorImpl(), buffer._version()};
      const bool kept_by_kernel = i < sent_.size() && sent_[i] == present;
      // variable_data() has a version of its own.
      (kept_by_kernel ? at::Tensor(buffer.variable_data()) : buffer.detach()).copy_(received[i].tensor);
    }
  }
  note_buffers(named);
}

void DdpState::note_buffers(const std::vector<NamedTensor>& named) {
  sent_.clear();
  for (const auto& entry : named)
    sent_.emplace_back(entry.tensor.unsafeGetTensorImpl(), entry.tensor._version());
}

void DdpState::expect_gradients(const std::vector<at::Tensor>& outputs) {
  mean->set_in_place(options.gradient_as_bucket_view && parameters.front().tensor.grad().defined());
  backward_begins();
  reducer->prepare_for_backward(searches_unused() ? outputs : std::vector<at::Tensor>{});
}

void DdpState::watch_backward(const std::vector<at::Tensor>& outputs, bool is_synchronised) {
  const auto call = std::make_shared<DdpForward>(DdpForward{is_synchronised, false, group.generation(), {}});
  if (is_synchronised && !searches_unused() && !learns_graph()) call->frozen = parameter_watch.frozen();
  const auto hook = [weak = weak_from_this(), call, who = who](const at::Tensor&) {
    if (const auto state = weak.lock()) return state->backward_reaches(*call);
    if (!call->is_synchronised || !is_whole_backward()) return;
    throw UsageError(*who +
                     ": the wrapper was destroyed between a forward and its backward, so the gradients "
                     "would not be averaged: keep the wrapper until after backward");
  };
  bool is_watched = false;
  for (const auto& output : outputs) {
    if (!output.grad_fn()) continue;
    output.register_hook(hook);
    is_watched = true;
  }
  if (is_watched) waiting_forwards().push_back(call);
}

void DdpState::backward_reaches(DdpForward& call) {
  if (!is_whole_backward()) return;
  call.had_backward = true;
  if (!call.is_synchronised || reducer == nullptr) return;
  if (call.generation != group.generation()) {
    throw UsageError(describe(group) +
                     ": the process group was formed again between a forward and its backward: compute the "
                     "step again from its forward on");
  }
  if (at::GradMode::is_enabled()) {
    throw UsageError(
        describe(group) +
        ": backward with create_graph cannot average gradients. Compute the gradients of a penalty with "
        "torch::autograd::grad(..., create_graph), add it to the loss, and call backward once without");
  }
  if (!call.frozen.empty()) {
    throw UsageError(
        fmt::format("{}: these parameters were frozen after the module was wrapped: {}. Without their "
                    "gradients the others "
                    "would not be averaged. Set find_unused_parameters, or wrap the module again after "
                    "freezing: make a new "
                    "DistributedDataParallel on every rank",
                    describe(group), call.frozen));
  }
  if (!backward_runs) {
    backward_runs = true;
    auto* const recorder = comm::GraphRecorder::of(group.device());
    backward_is_recorded = recorder != nullptr && recorder->is_recording();
    backward_is_unfinished = true;
    torch::autograd::Engine::get_default_engine().queue_callback([state = shared_from_this()] {
      state->backward_runs = false;
      // Behind the reducer's own callback, in which it waits for the last buckets.
      torch::autograd::Engine::get_default_engine().queue_callback(
          [state] { state->backward_is_unfinished = false; });
    });
  }
  if (reducer->expects_gradients()) return;
  // A second backward of this forward, or one after that of another forward.
  if (searches_unused() || options.static_graph || join) {
    throw UsageError(
        describe(group) +
        ": a second backward after this wrapper's gradients were averaged: its own gradients would not be "
        "averaged. With find_unused_parameters, static_graph or join, add the losses and call backward "
        "once");
  }
  reducer->forget_order();
  expect_gradients({});
}

}  // namespace lockstep
