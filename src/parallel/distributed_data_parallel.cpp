#include "lockstep/parallel/distributed_data_parallel.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <algorithm>
#include <limits>
#include <sstream>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "../comm/c10d_handles.hpp"
#include "../comm/errors.hpp"
#include "comm/transport/shared_allocation.hpp"
#include "ddp_state.hpp"
#include "join.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "module_agreement.hpp"

namespace lockstep {

std::string describe(const ProcessGroup& group) {
  return fmt::format("rank {} of {}: DistributedDataParallel", group.rank(), group.size());
}

namespace {

constexpr std::size_t kBroadcastBucketBytes = 250U * 1024 * 1024;  // As in PyTorch's DDP.

using Tensors = std::vector<at::Tensor>;

c10::intrusive_ptr<c10d::ProcessGroup> c10d_group(const ProcessGroup& group) {
  return comm::to_intrusive(group.c10d_process_group());
}

std::vector<NamedTensor> trained(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> result;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(result),
               [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
  return result;
}

/// The names for the numbers in "Parameter indices which did not receive grad for rank 0: 2 3".
std::string unused_parameters(const DdpState& state, const std::string& complaint) {
  const auto heading = complaint.find("Parameter indices which did not receive grad");
  const auto colon = heading == std::string::npos ? heading : complaint.find(':', heading);
  if (colon == std::string::npos) return "";
  std::istringstream numbers(complaint.substr(colon + 1));
  std::string names;
  for (std::size_t index = 0; numbers >> index && index < state.parameters.size();) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", state.parameters[index].name);
  }
  return names;
}

/// Whether the running backward adds to the gradients of all leaves, unlike autograd::grad().
bool is_whole_backward() {
  const auto* const selected = torch::autograd::get_current_graph_task_exec_info();
  return selected == nullptr || selected->empty();
}

/// Explains an exception of the reducer in a forward; call it in a handler.
[[noreturn]] void explain(const DdpState& state) {
  const std::string who = describe(state.group);
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::DistError&) {
    comm::rethrow_as_communication_error(who + ": a forward failed");
  } catch (const c10::Error& error) {
    const std::string complaint = error.what_without_backtrace();
    if (state.backward_runs) {
      throw Error(
          who +
          ": the last backward ended with an exception, and its gradients were not averaged. Ranks may have "
          "ended at different gradients: clear the gradients and wrap the module again, on every rank");
    }
    const std::string names = unused_parameters(state, complaint);
    if (names.empty()) throw Error(fmt::format("{}: {}", who, complaint));
    throw Error(
        who + ": the last backward left these parameters without a gradient: " + names +
        ". If the forward does not always use them, set find_unused_parameters; if it never does, do not "
        "register them, or freeze them with requires_grad_(false)");
  } catch (const std::exception&) {
    comm::rethrow_as_communication_error(who + ": a forward failed");
  }
}

/// On a GPU, compute times include waiting for other ranks, so that all ranks seem equally fast.
StragglerOptions straggler_options(const DdpState& state) {
  StragglerOptions options = state.options.stragglers;
  if (!state.parameters.empty() && state.parameters.front().tensor.is_cuda()) options.every = 0;
  return options;
}

}  // namespace

DdpState::DdpState(const std::vector<NamedTensor>& all_parameters,
                   std::vector<NamedTensor> trained_parameters, const ProcessGroup& ddp_group,
                   const DistributedDataParallelOptions& ddp_options)
    : parameters(std::move(trained_parameters)),
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
  if (pipeline == nullptr) return;
  pipeline->hook().buckets_changed();
  reducer->register_comm_hook(parallel::as_reducer_hook(pipeline));
}

parallel::CommHookRunner& DdpState::need_pipeline() {
  if (pipeline == nullptr) {
    pipeline = std::make_shared<parallel::CommHookRunner>(group, mean, parameters);
    reducer->register_comm_hook(parallel::as_reducer_hook(pipeline));
  }
  return *pipeline;
}

void DdpState::rebuild_buckets() {
  const comm::SharedAllocation buckets_are_shared(group);
  if (reducer->rebuild_buckets() && pipeline != nullptr) pipeline->hook().buckets_changed();
}

void DdpState::backward_begins() {
  reducer->buckets_begin();
  if (pipeline != nullptr) pipeline->backward_begins();
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
  sent_.clear();
  for (const auto& entry : named)
    sent_.emplace_back(entry.tensor.unsafeGetTensorImpl(), entry.tensor._version());
}

void DdpState::expect_gradients(const std::vector<at::Tensor>& outputs) {
  mean->set_in_place(options.gradient_as_bucket_view && parameters.front().tensor.grad().defined());
  backward_begins();
  reducer->prepare_for_backward(searches_unused() ? outputs : Tensors{});
}

void DdpState::watch_backward(const std::vector<at::Tensor>& outputs, bool is_synchronised) {
  const auto call = std::make_shared<DdpForward>(DdpForward{is_synchronised, false, {}});
  if (is_synchronised && !searches_unused() && !learns_graph()) call->frozen = parameter_watch.frozen();
  const auto hook = [weak = weak_from_this(), call, who = who](const at::Tensor&) {
    if (const auto state = weak.lock()) return state->backward_reaches(*call);
    if (!call->is_synchronised || !is_whole_backward()) return;
    throw UsageError(*who +
                     ": the wrapper was destroyed between a forward and its backward, whose gradients "
                     "nothing would average: keep the wrapper until after backward");
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
    torch::autograd::Engine::get_default_engine().queue_callback(
        [state = shared_from_this()] { state->backward_runs = false; });
  }
  if (reducer->expects_gradients()) return;
  // A second backward of this forward, or one after that of another forward.
  if (searches_unused() || options.static_graph || join) {
    throw UsageError(
        describe(group) +
        ": gradients of this wrapper have been averaged since this forward, and those of another "
        "backward would stay this rank's own. With find_unused_parameters, static_graph or join, "
        "add the losses and call backward once");
  }
  reducer->forget_order();
  expect_gradients({});
}

DistributedDataParallelBase::DistributedDataParallelBase(std::vector<NamedTensor> parameters,
                                                         std::vector<NamedTensor> buffers,
                                                         const ProcessGroup& group,
                                                         const DistributedDataParallelOptions& options)
    : state_(std::make_shared<DdpState>(parameters, trained(parallel::without_repeats(parameters)), group,
                                        options)) {
  const std::string complaint = parallel::complaint_about(state_->parameters, group, options);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
    return;
  }
  parallel::check_agreement(group, {.parameters = parameters,
                                    .buffers = buffers,
                                    .options = parallel::summary_of(options),
                                    .complaint = complaint,
                                    .buckets_follow_strides = true});
  state_->has_buffers = !buffers.empty();
  // Frozen parameters too: every rank must start from the same values.
  state_->broadcast(parallel::without_repeats(parameters), 0);
  if (options.broadcast_buffers) state_->broadcast(parallel::without_repeats(buffers), 0);
  state_->install_reducer(parallel::first_buckets(state_->parameters, options));
  if (options.non_finite_gradients == NonFiniteGradients::ignore) return;
  state_->need_pipeline().set_check(
      std::make_unique<parallel::GradientCheck>(group, state_->parameters, options.non_finite_gradients));
}

BucketLayout DistributedDataParallelBase::bucket_layout() {
  if (state_->reducer == nullptr) return {};
  try {
    state_->rebuild_buckets();  // As the next forward would.
  } catch (const std::exception&) {
    explain(*state_);
  }
  std::unordered_map<const void*, std::size_t> numbers;
  for (const auto& entry : state_->parameters)
    numbers.emplace(entry.tensor.unsafeGetTensorImpl(), numbers.size());
  BucketLayout layout;
  for (const auto& bucket : state_->reducer->get_grad_buckets()) {
    auto& members = layout.emplace_back();
    for (const auto& tensor : bucket.getParameters())
      members.push_back(numbers.at(tensor.unsafeGetTensorImpl()));
  }
  return layout;
}

void DistributedDataParallelBase::set_bucket_layout(const BucketLayout& layout) {
  if (state_->reducer == nullptr) return;
  parallel::check_layout(layout, state_->parameters.size());
  state_->install_reducer(layout);
}

void DistributedDataParallelBase::register_comm_hook(std::shared_ptr<CommHook> hook) {
  if (hook == nullptr) throw UsageError("register_comm_hook: expected a hook, but got none");
  if (!state_->options.sparse_parameters.empty()) {
    throw UsageError("register_comm_hook: hooks see dense gradients only, but sparse_parameters names '" +
                     state_->options.sparse_parameters.front() + "'");
  }
  if (state_->reducer == nullptr) return;
  parallel::check_same_hook(state_->group, hook->name());
  state_->need_pipeline().set_hook(std::move(hook));
}

bool DistributedDataParallelBase::sends_buffers() const {
  return state_->reducer != nullptr && state_->has_buffers && state_->options.broadcast_buffers &&
         state_->buffers_are_due;
}

void DistributedDataParallelBase::apply_in_backward(ApplyGradients apply) {
  if (const auto why = parallel::complaint_about_applying(state_->options); !why.empty())
    throw UsageError("applying gradients in backward: " + why);
  if (state_->reducer == nullptr) return;
  state_->need_pipeline().set_apply(std::move(apply));
  state_->applies_in_backward = true;
  state_->reducer->set_optimizer_in_backward();
}

DdpStatistics DistributedDataParallelBase::statistics() const {
  DdpStatistics result;
  for (const auto& entry : state_->parameters) result.parameters += entry.tensor.numel();
  if (state_->reducer == nullptr) return result;
  result.bucket_bytes = state_->logger->get_bucket_sizes();
  for (const auto bytes : result.bucket_bytes) result.gradient_bytes += bytes;
  result.buckets_rebuilt = state_->reducer->has_rebuilt_buckets();
  state_->watch.add_to(result);
  return result;
}

bool DistributedDataParallelBase::watches_parameters() const {
  return state_->reducer != nullptr && at::GradMode::is_enabled();
}

void DistributedDataParallelBase::before_forward(const std::vector<at::Tensor>& parameters,
                                                 const parallel::NamesOfParameters& names,
                                                 const std::vector<NamedTensor>& buffers) {
  process_heartbeat().working("forward");
  DdpState& state = *state_;
  state.forward.emplace("forward");
  if (state.reducer == nullptr) {
    if (state.group.size() == 1) return;
    throw Error(describe(state.group) + ": new buckets could not be made before: nothing averages gradients");
  }
  if (state.applies_in_backward && !state.synchronise && at::GradMode::is_enabled()) {
    throw UsageError(describe(state.group) +
                     ": gradients that are applied in backward cannot be accumulated: no_sync() needs a step "
                     "after backward");
  }
  if (watches_parameters()) state.parameter_watch.check(parameters, names, *state.reducer);
  try {
    if (state.synchronises()) state.watch.step(state.reducer->times(), !state.join);
    if (state.join) parallel::meet_joined_ranks(state);
    if (at::GradMode::is_enabled()) state.rebuild_buckets();
    if (state.synchronises()) state.reducer->prepare_for_forward();
  } catch (const std::exception&) {
    explain(state);
  }
  if (torch::autograd::get_current_graph_task_id() == -1) state.backward_runs = false;
  if (!buffers.empty())
    state.broadcast_buffers(parallel::without_repeats(buffers), state.join ? state.join->authority : 0);
}

std::vector<at::Tensor> DistributedDataParallelBase::after_forward(std::vector<at::Tensor> outputs) {
  DdpState& state = *state_;
  state.forward.reset();
  if (state.reducer == nullptr) return outputs;
  const bool is_synchronised = state.synchronises();
  state.buffers_are_due = is_synchronised;
  if (is_synchronised) {
    try {
      state.expect_gradients(outputs);
    } catch (const std::exception&) {
      explain(state);
    }
  }
  if (state.searches_unused() || state.learns_graph())
    outputs = parallel::through_output_node(state_, outputs);
  if (at::GradMode::is_enabled()) state.watch_backward(outputs, is_synchronised);
  return outputs;
}

void DistributedDataParallelBase::zero_grad(bool set_to_none) {
  for (const auto& entry : state_->parameters) clear_gradient(entry.tensor, set_to_none);
}

void clear_gradient(const at::Tensor& parameter, bool set_to_none) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) return;
  if (set_to_none) {
    gradient.reset();
  } else {
    const at::NoGradGuard no_grad;
    gradient.zero_();
  }
}

const std::vector<NamedTensor>& DistributedDataParallelBase::parameters() const { return state_->parameters; }
const ProcessGroup& DistributedDataParallelBase::process_group() const { return state_->group; }
const DistributedDataParallelOptions& DistributedDataParallelBase::options() const { return state_->options; }

DistributedDataParallelBase::NoSync::NoSync(DistributedDataParallelBase& ddp)
    : state_(ddp.state_), before_(ddp.state_->synchronise) {
  state_->synchronise = false;
}

DistributedDataParallelBase::NoSync::~NoSync() { state_->synchronise = before_; }

}  // namespace lockstep
