#include "lockstep/parallel/distributed_data_parallel.hpp"

#include <fmt/core.h>

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

DdpState::DdpState(std::vector<NamedTensor> trained_parameters, const ProcessGroup& ddp_group,
                   const DistributedDataParallelOptions& ddp_options)
    : parameters(std::move(trained_parameters)),
      group(ddp_group),
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
  for (const auto& entry : named) values.push_back(entry.tensor.detach());
  comm::translated(
      [&] { c10d::broadcast_coalesced(c10d_group(group), values, kBroadcastBucketBytes, root); },
      [&] { return fmt::format("{}: copying the values of rank {} failed", describe(group), root); });
  if (root != group.rank()) watch.waited(std::chrono::steady_clock::now() - begin);
}

DistributedDataParallelBase::DistributedDataParallelBase(std::vector<NamedTensor> parameters,
                                                         std::vector<NamedTensor> buffers,
                                                         const ProcessGroup& group,
                                                         const DistributedDataParallelOptions& options)
    : state_(std::make_shared<DdpState>(trained(parallel::without_repeats(parameters)), group, options)) {
  const std::string complaint = parallel::complaint_about(state_->parameters, group, options);
  if (group.size() == 1) {
    if (!complaint.empty()) throw UsageError(complaint);
    return;
  }
  parallel::check_agreement(group, {parameters, buffers, parallel::summary_of(options), complaint});
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

void DistributedDataParallelBase::before_forward(const std::vector<NamedTensor>& buffers) {
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
  try {
    if (state.synchronises()) state.watch.step(state.reducer->times(), !state.join);
    if (state.join) parallel::meet_joined_ranks(state);
    if (at::GradMode::is_enabled()) state.rebuild_buckets();
    if (state.synchronises()) state.reducer->prepare_for_forward();
  } catch (const std::exception&) {
    explain(state);
  }
  state.broadcast(parallel::without_repeats(buffers), state.join ? state.join->authority : 0);
}

std::vector<at::Tensor> DistributedDataParallelBase::after_forward(std::vector<at::Tensor> outputs) {
  DdpState& state = *state_;
  state.forward.reset();
  if (state.reducer == nullptr) return outputs;
  const bool searches = state.options.find_unused_parameters && !state.options.static_graph;
  state.buffers_are_due = state.synchronises();
  if (state.synchronises()) {
    state.mean->set_in_place(state.options.gradient_as_bucket_view &&
                             state.parameters.front().tensor.grad().defined());
    state.backward_begins();
    try {
      state.reducer->prepare_for_backward(searches ? outputs : Tensors{});
    } catch (const std::exception&) {
      explain(state);
    }
  }
  return searches || state.learns_graph() ? parallel::through_output_node(state_, outputs) : outputs;
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
